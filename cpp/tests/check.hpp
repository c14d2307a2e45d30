// The least a test needs: named cases, CHECK, and a main that runs them.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace test {

struct Case {
  const char* name;
  void (*run)();
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
inline int& failures() {
  static int count = 0;
  return count;
}
struct Register {
  Register(const char* name, void (*run)()) { cases().push_back({name, run}); }
};

// The message of the std::exception `call` throws, or "" where it throws none.
template <class Call>
std::string thrown(Call&& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace test

#define TEST(name)                                           \
  static void name();                                        \
  static const test::Register register_##name(#name, &name); \
  static void name()

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      ++test::failures();                                                          \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                              \
  } while (false)

int main() {
  for (const test::Case& each : test::cases()) {
    const int before = test::failures();
    each.run();
    std::printf("%s %s\n", test::failures() == before ? "ok  " : "FAIL", each.name);
  }
  return test::failures() == 0 ? 0 : 1;
}
