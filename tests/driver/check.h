#pragma once
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <latch>
#include <string>
#include <vector>

/// The tests of this program, in the order of their files.
struct Test {
  static std::vector<Test>& all() {
    static std::vector<Test> tests;
    return tests;
  }
  std::string name;
  void (*run)();
};

/// Ends the program at once: unwinding would wait for streams that the test keeps closed.
[[noreturn]] void fail(const char* file, int line, const char* format, ...);
void check_text(const char* file, int line, const std::exception& error, const char* text);

#define TEST(name)                                                               \
  static void name();                                                            \
  static const bool name##_added = (Test::all().push_back({#name, name}), true); \
  static void name()

#define FAIL(...) fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(...)                                \
  do {                                            \
    if (!(__VA_ARGS__)) FAIL("%s", #__VA_ARGS__); \
  } while (false)

#define CHECK_EQ(left, right)                                                                                                  \
  do {                                                                                                                         \
    const auto left_value = (left);                                                                                            \
    const decltype(left_value) right_value = (right);                                                                          \
    if (left_value != right_value) FAIL("%s == %s: %lld, %lld", #left, #right, (long long)left_value, (long long)right_value); \
  } while (false)

/// That the expression throws `type`, and that the message contains `text`.
#define CHECK_THROWS(type, text, ...)                                  \
  do {                                                                 \
    bool thrown = false;                                               \
    try {                                                              \
      __VA_ARGS__;                                                     \
    } catch (const type& error) {                                      \
      thrown = true;                                                   \
      check_text(__FILE__, __LINE__, error, text);                     \
    }                                                                  \
    if (!thrown) FAIL("%s was not thrown by %s", #type, #__VA_ARGS__); \
  } while (false)

/// What keeps a task running until the test says so.
class Gate {
 public:
  void open() { latch_.count_down(); }
  void pass() { latch_.wait(); }

 private:
  std::latch latch_{1};
};
