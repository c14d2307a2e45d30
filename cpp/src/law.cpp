#include "law.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace steppe {
namespace {

template <class Visit, std::size_t... I>
void each_law(Visit&& visit, std::index_sequence<I...>) {
  (visit(std::in_place_type<std::variant_alternative_t<I, Law>>), ...);
}
template <class Visit>
void each_law(Visit&& visit) {
  each_law(visit, std::make_index_sequence<std::variant_size_v<Law>>{});
}

[[noreturn]] void refuse(const Term& term, const std::string& why) {
  throw std::invalid_argument("term '" + term.name + "' (law " + term.law + "): " + why);
}

template <class T>
void check_shape(const Term& term) {
  if constexpr (std::is_same_v<T, terms::CurveTerm>) {
    const std::size_t numbers = term.params.size();
    if (numbers < T::kHead + 2 || numbers % 2 != 0)
      refuse(term, "needs its head and at least one (bytes, us) point");
  } else if (term.params.size() != T::params.size()) {
    refuse(term, "takes " + std::to_string(T::params.size()) + " parameters, not " +
                     std::to_string(term.params.size()));
  }
  if (term.inputs.size() != T::inputs.size()) {
    refuse(term, "reads " + std::to_string(T::inputs.size()) + " features, not " +
                     std::to_string(term.inputs.size()));
  }
  for (std::size_t i = 0; i < term.params.size(); ++i) {
    if (!std::isfinite(term.params[i])) {
      refuse(term,
             std::string("parameter ") + T::params[std::min(i, T::params.size() - 1)] + " is not finite");
    }
  }
  if constexpr (requires { T::fault(term.params); }) {
    if (const char* why = T::fault(term.params)) refuse(term, why);
  }
}

Law lift(const Term& term) {
  std::optional<Law> law;
  each_law([&]<class T>(std::in_place_type_t<T>) {
    if (law || term.law != T::name) return;
    check_shape<T>(term);
    law.emplace(T(term.params));
  });
  if (!law) refuse(term, "no such law");
  return *std::move(law);
}

Entry compile(const Plan& plan, const Term& term) {
  if (term.stage >= plan.stages.size()) refuse(term, "stage out of range");
  if (!(term.count >= 0) || !std::isfinite(term.count)) refuse(term, "count must be finite and not negative");
  Entry entry{.law = lift(term)};
  entry.count = term.count;
  entry.stage = term.stage;
  entry.resource = term.resource;
  entry.serial = term.serial;
  entry.derate = term.derate;
  entry.ungated = term.law == terms::HostLaunch::name;
  entry.input_count = static_cast<std::uint8_t>(term.inputs.size());
  for (std::size_t i = 0; i < term.inputs.size(); ++i) {
    if (term.inputs[i] >= plan.features.count()) refuse(term, "feature out of range");
    entry.inputs[i] = term.inputs[i];
  }
  return entry;
}

void check_hidden(const Plan& plan, const std::vector<Entry>& entries, std::size_t here) {
  const auto* hidden = std::get_if<terms::HiddenBehind>(&entries[here].law);
  if (!hidden) return;
  const Term& term = plan.terms[here];
  if (hidden->first > hidden->last || hidden->last >= here || hidden->behind >= here) {
    refuse(term, "refers to terms that do not come before it");
  }
  const auto checked = [&](std::size_t other) {
    if (entries[other].law.index() == entries[here].law.index())
      refuse(term, "refers to another term of its own law");
    if (plan.stages[entries[other].stage].pass != plan.stages[entries[here].stage].pass) {
      refuse(term, "refers to a term of another pass");
    }
  };
  for (std::size_t i = hidden->first; i <= hidden->last; ++i) checked(i);
  checked(hidden->behind);
}

}  // namespace

const std::vector<LawInfo>& laws_table() {
  static const std::vector<LawInfo> table = [] {
    std::vector<LawInfo> laws;
    each_law([&laws]<class T>(std::in_place_type_t<T>) {
      laws.push_back({T::name, {T::params.begin(), T::params.end()}, {T::inputs.begin(), T::inputs.end()}});
    });
    return laws;
  }();
  return table;
}

std::vector<Entry> compile(const Plan& plan) {
  std::vector<Entry> entries;
  entries.reserve(plan.terms.size());
  for (const Term& term : plan.terms) entries.push_back(compile(plan, term));
  for (std::size_t i = 0; i < entries.size(); ++i) check_hidden(plan, entries, i);
  return entries;
}

}  // namespace steppe
