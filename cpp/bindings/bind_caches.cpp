#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <exception>
#include <string>

#include "bindings.hpp"
#include "steppe/caches.hpp"
#include "steppe/memory.hpp"

namespace py = pybind11;
using steppe::CacheGroup;
using steppe::CacheKind;
using steppe::CacheLimits;
using steppe::CachePool;
using steppe::CacheStep;
using steppe::RequestBlocks;

namespace {

using Counts = py::array_t<std::int64_t, py::array::c_style>;

// A 1-D integer array as int64, copied only when it is not one already. Floats, bools, strings and counts
// that do not fit are refused, never cast.
Counts counts(const py::object& values, const char* name) {
  py::array array = py::array::ensure(values);
  if (!array) {
    PyErr_Clear();
    throw py::type_error(std::string(name) + " must be an array of integers");
  }
  if (array.ndim() != 1) throw py::value_error(std::string(name) + " must have one dimension");
  if (array.size() == 0) return Counts(0);
  const char kind = array.dtype().kind();
  if (kind != 'i' && kind != 'u') throw py::type_error(std::string(name) + " must hold integers");
  if (kind == 'u' && array.dtype().itemsize() == 8) {
    const auto wide = py::array_t<std::uint64_t, py::array::c_style>::ensure(array);
    for (py::ssize_t i = 0; i < wide.size(); ++i) {
      if (wide.at(i) > static_cast<std::uint64_t>(INT64_MAX)) {
        throw py::value_error(std::string(name) + " holds a count that does not fit 64 bits");
      }
    }
  }
  // The kind is integer by now, so the cast below only widens or swaps bytes.
  Counts out = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>::ensure(array);
  if (!out) {
    PyErr_Clear();
    throw py::type_error(std::string(name) + " cannot be read as 64-bit integers");
  }
  return out;
}

Counts output(const py::object& out, py::ssize_t size) {
  if (out.is_none()) return Counts(size);
  if (!py::isinstance<Counts>(out)) throw py::type_error("out must be a contiguous int64 array");
  Counts array = out.cast<Counts>();
  if (array.ndim() != 1 || array.size() != size) throw py::value_error("out must have the input's length");
  if (!array.writeable()) throw py::value_error("out must be writeable");
  return array;
}

void same_length(const Counts& a, const Counts& b, const char* name) {
  if (a.size() != b.size())
    throw py::value_error(std::string(name) + " must have the length of the first array");
}

// out[i] = query(i) without the interpreter lock; a failing query names its position.
template <typename Query>
Counts bulk(py::ssize_t size, const py::object& out, Query&& query) {
  Counts result = output(out, size);
  std::int64_t* written = result.mutable_data();
  py::gil_scoped_release unlocked;
  for (py::ssize_t i = 0; i < size; ++i) {
    try {
      written[i] = query(i);
    } catch (const steppe::CacheError& error) {
      throw steppe::CacheError("at position " + std::to_string(i) + ": " + error.what());
    }
  }
  return result;
}

CacheKind kind_named(const std::string& name) {
  static const std::pair<const char*, CacheKind> kNames[] = {
      {"full", CacheKind::full},
      {"window", CacheKind::window},
      {"chunked", CacheKind::chunked},
      {"state_none", CacheKind::state_none},
      {"state_align", CacheKind::state_align},
      {"state_all", CacheKind::state_all},
      {"ring", CacheKind::ring},
      {"cross", CacheKind::cross},
      {"reference_window", CacheKind::reference_window},
  };
  for (const auto& [known, kind] : kNames) {
    if (name == known) return kind;
  }
  throw py::value_error("unknown cache kind '" + name + "'");
}

using Growth = std::int64_t (CachePool::*)(std::int64_t) const;

auto bulk_bytes(Growth blocks) {
  return [blocks](const CachePool& pool, const py::object& tokens, std::size_t stage, const py::object& out) {
    const Counts n = counts(tokens, "tokens");
    const std::int64_t* t = n.data();
    return bulk(n.size(), out, [&](py::ssize_t i) { return pool.bytes((pool.*blocks)(t[i]), stage); });
  };
}

void bind_groups(py::module_& m) {
  py::class_<CacheGroup>(m, "CacheGroup", "How the blocks of one cache group come and go; sizes in tokens.")
      .def(py::init([](const std::string& kind, std::int64_t block_size, std::int64_t shards,
                       std::int64_t span, std::int64_t speculative, std::int64_t checkpoint) {
             return CacheGroup{kind_named(kind), block_size, shards, span, speculative, checkpoint};
           }),
           py::arg("kind"), py::arg("block_size"), py::kw_only(), py::arg("shards") = 1, py::arg("span") = 0,
           py::arg("speculative") = 0, py::arg("checkpoint") = 0)
      .def_readonly("block_size", &CacheGroup::block_size)
      .def_readonly("shards", &CacheGroup::shards)
      .def_readonly("span", &CacheGroup::span)
      .def_readonly("speculative", &CacheGroup::speculative);

  py::class_<CacheLimits>(m, "CacheLimits", "What bounds one request, in tokens.")
      .def(py::init([](std::int64_t max_model_len, std::int64_t in_flight, std::int64_t extra,
                       std::int64_t lookahead, std::int64_t encoder) {
             return CacheLimits{max_model_len, in_flight, extra, lookahead, encoder};
           }),
           py::kw_only(), py::arg("max_model_len"), py::arg("max_in_flight_tokens"),
           py::arg("extra_retained_tokens") = 0, py::arg("lookahead_tokens") = 0,
           py::arg("max_encoder_tokens") = 0)
      .def_readonly("max_model_len", &CacheLimits::max_model_len)
      .def_readonly("max_in_flight_tokens", &CacheLimits::max_in_flight_tokens);

  m.def("max_in_flight_tokens", &steppe::max_in_flight_tokens, py::arg("pipeline_stages"),
        py::arg("async_scheduling"), py::arg("max_num_batched_tokens"),
        "Tokens scheduled and not settled at most, for the default model runner.");
}

void bind_capacity(py::module_& m) {
  using steppe::CacheCapacity;
  py::class_<CacheCapacity>(m, "CacheCapacity", "The outcome of the engine's start-up sizing.")
      .def_readonly("fits", &CacheCapacity::fits)
      .def_readonly("failing_stage", &CacheCapacity::failing_stage)
      .def_readonly("no_memory", &CacheCapacity::no_memory)
      .def_readonly("num_blocks", &CacheCapacity::num_blocks)
      .def_readonly("usable_blocks", &CacheCapacity::usable_blocks)
      .def_readonly("startup_blocks", &CacheCapacity::startup_blocks)
      .def_readonly("startup_bytes", &CacheCapacity::startup_bytes)
      .def_readonly("max_concurrency", &CacheCapacity::max_concurrency)
      .def_readonly("capacity_tokens", &CacheCapacity::capacity_tokens)
      .def_readonly("estimated_max_len", &CacheCapacity::estimated_max_len)
      .def_readonly("auto_fit_max_len", &CacheCapacity::auto_fit_max_len);
}

void bind_requests(py::module_& m) {
  py::class_<RequestBlocks>(m, "RequestBlocks", "The blocks of one running request, step by step.")
      .def(py::init<std::int64_t, std::int64_t>(), py::arg("prompt") = 0, py::arg("encoder_tokens") = 0)
      .def("schedule", &RequestBlocks::schedule, py::arg("pool"), py::arg("computed"), py::arg("scheduled"),
           py::arg("in_flight") = 0)
      .def("held", py::overload_cast<const CachePool&>(&RequestBlocks::held, py::const_), py::arg("pool"))
      .def("held_of", py::overload_cast<const CachePool&, std::size_t>(&RequestBlocks::held, py::const_),
           py::arg("pool"), py::arg("group"));
}

std::vector<std::int64_t> admission_of(const CachePool& pool, std::int64_t tokens,
                                       std::int64_t encoder_tokens) {
  pool.admission_blocks(tokens, encoder_tokens);  // refuses counts out of range
  std::vector<std::int64_t> out;
  for (const CacheGroup& group : pool.groups()) {
    out.push_back(tokens <= 0 ? 0 : steppe::admission_blocks(group, pool.limits(), tokens, encoder_tokens));
  }
  return out;
}

std::vector<std::int64_t> startup_of(const CachePool& pool) {
  std::vector<std::int64_t> out;
  for (const CacheGroup& group : pool.groups()) {
    out.push_back(steppe::startup_blocks(group, pool.limits(), pool.limits().max_model_len));
  }
  return out;
}

}  // namespace

namespace steppe::bindings {

void bind_caches(py::module_& m) {
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const CacheError& error) {
      py::set_error(py::module_::import("steppe.errors").attr("Error"), error.what());
    }
  });
  bind_groups(m);
  bind_capacity(m);

  py::class_<CachePool>(m, "CachePool", "Cache groups over one allocation on each pipeline stage; immutable.")
      .def(py::init<std::vector<CacheGroup>, std::vector<std::int64_t>, CacheLimits>(), py::arg("groups"),
           py::arg("bytes_per_block"), py::arg("limits"))
      .def_property_readonly("groups", &CachePool::groups)
      .def_property_readonly("bytes_per_block", &CachePool::bytes_per_block)
      .def_property_readonly("limits", &CachePool::limits)
      .def("startup_blocks", py::overload_cast<>(&CachePool::startup_blocks, py::const_))
      .def("startup_blocks_at", py::overload_cast<std::int64_t>(&CachePool::startup_blocks, py::const_),
           py::arg("max_model_len"), "Start-up blocks of a request of another length.")
      .def("startup_blocks_by_group", &startup_of)
      .def("admission_blocks", &CachePool::admission_blocks, py::arg("tokens"), py::arg("encoder_tokens") = 0)
      .def("admission_blocks_by_group", &admission_of, py::arg("tokens"), py::arg("encoder_tokens") = 0)
      .def("growing_blocks", &CachePool::growing_blocks, py::arg("tokens"))
      .def("bounded_blocks", &CachePool::bounded_blocks, py::arg("tokens"))
      .def("constant_blocks", &CachePool::constant_blocks)
      .def(
          "held_blocks",
          [](const CachePool& pool, std::int64_t computed, std::int64_t scheduled, std::int64_t in_flight,
             std::int64_t prompt, std::int64_t encoder) {
            return pool.held_blocks(CacheStep{computed, scheduled, in_flight, prompt, encoder});
          },
          py::arg("computed"), py::arg("scheduled"), py::arg("in_flight") = 0, py::arg("prompt") = 0,
          py::arg("encoder_tokens") = 0)
      .def("bytes", &CachePool::bytes, py::arg("blocks"), py::arg("stage") = 0)
      .def("growing_bytes", bulk_bytes(&CachePool::growing_blocks), py::arg("tokens"), py::arg("stage") = 0,
           py::arg("out") = py::none(),
           "Bytes of the caches that grow with length, for an array of token counts.")
      .def("bounded_bytes", bulk_bytes(&CachePool::bounded_blocks), py::arg("tokens"), py::arg("stage") = 0,
           py::arg("out") = py::none(), "Bytes of window and chunked caches, for an array of token counts.")
      .def(
          "admission_bytes",
          [](const CachePool& pool, const py::object& tokens, std::size_t stage, const py::object& out) {
            const Counts n = counts(tokens, "tokens");
            const std::int64_t* t = n.data();
            return bulk(n.size(), out,
                        [&](py::ssize_t i) { return pool.bytes(pool.admission_blocks(t[i]), stage); });
          },
          py::arg("tokens"), py::arg("stage") = 0, py::arg("out") = py::none(),
          "Bytes the admission gate charges, for an array of token counts.")
      .def(
          "held_bytes",
          [](const CachePool& pool, const py::object& computed, const py::object& scheduled,
             const py::object& in_flight, std::size_t stage, const py::object& out) {
            const Counts c = counts(computed, "computed");
            const Counts s = counts(scheduled, "scheduled");
            const Counts f = counts(in_flight, "in_flight");
            same_length(c, s, "scheduled");
            same_length(c, f, "in_flight");
            const std::int64_t* pc = c.data();
            const std::int64_t* ps = s.data();
            const std::int64_t* pf = f.data();
            return bulk(c.size(), out, [&](py::ssize_t i) {
              return pool.bytes(pool.held_blocks(CacheStep{pc[i], ps[i], pf[i], 0, 0}), stage);
            });
          },
          py::arg("computed"), py::arg("scheduled"), py::arg("in_flight"), py::arg("stage") = 0,
          py::arg("out") = py::none(), "Bytes requests hold in one step, for arrays of their token counts.")
      .def(
          "capacity",
          [](const CachePool& pool, const std::vector<std::int64_t>& available) {
            return steppe::cache_capacity(pool, available);
          },
          py::arg("available_bytes"), "Blocks, tokens and lengths from one byte budget a stage.")
      .def(
          "estimated_max_model_len",
          [](const CachePool& pool, std::int64_t available, std::size_t stage) {
            return steppe::estimated_max_model_len(pool, stage, available);
          },
          py::arg("available_bytes"), py::arg("stage") = 0);

  bind_requests(m);
}

}  // namespace steppe::bindings
