// Runs the tests whose names contain the first argument, or all of them.
#include "check.h"

void fail(const char* file, int line, const char* format, ...) {
  std::fprintf(stderr, "%s:%d: FAILED: ", file, line);
  va_list values;
  va_start(values, format);
  std::vfprintf(stderr, format, values);
  va_end(values);
  std::fputc('\n', stderr);
  std::fflush(nullptr);
  std::_Exit(1);
}

void check_text(const char* file, int line, const std::exception& error, const char* text) {
  if (!std::strstr(error.what(), text)) fail(file, line, "no \"%s\" in: %s", text, error.what());
}

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  int count = 0;
  for (const auto& test : Test::all()) {
    if (test.name.find(wanted) == std::string::npos) continue;
    std::printf("%s\n", test.name.c_str());
    std::fflush(stdout);
    try {
      test.run();
    } catch (const std::exception& error) {
      FAIL("%s threw: %s", test.name.c_str(), error.what());
    }
    ++count;
  }
  std::printf("%d tests passed\n", count);
  return count > 0 ? 0 : 1;
}
