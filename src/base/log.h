// SPDX-License-Identifier: Apache-2.0
// Structured logs: one line per event, a message and named fields.
//
//   logging::Info("engine loaded", {{"path", dir}, {"ms", elapsed_ms}});
//
// prints `I1121 10:02:03.123456 1234 load.cc:88] "engine loaded path=/m/engine ms=212"`, Triton's
// default log format (docs/operations.md, "The log"): time in UTC, process, place, a JSON string.
// Values with blanks or control characters are quoted and escaped before, so a client's text cannot
// forge a line; of long ones the first 4,096 bytes are shown. A place in the code has only so many
// lines (log_budget.h), verbose ones aside; a line tells how many were left out. Lines go to
// standard error unless log_settings.h says otherwise. Threads: all functions are thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>

namespace inflight::logging {

enum class Level { kVerbose, kInfo, kWarning, kError };

struct Field {
  std::string_view name;
  std::string value;

  Field(std::string_view n, std::string v) : name(n), value(std::move(v)) {}
  Field(std::string_view n, std::string_view v) : name(n), value(v) {}
  Field(std::string_view n, const char* v) : name(n), value(v) {}
  Field(std::string_view n, bool v) : name(n), value(v ? "true" : "false") {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Field(std::string_view n, T v) : name(n), value(std::to_string(v)) {}
  template <std::floating_point T>
  Field(std::string_view n, T v) : name(n), value(Number(v)) {}

 private:
  static std::string Number(double v);
};

// The least level that is printed; kInfo at start. Verbose lines are for debugging
// (`--log-verbose`).
void SetLevel(Level level);
bool Enabled(Level level);

using Where = std::source_location;

void Log(Level level, std::string_view message, std::initializer_list<Field> fields = {},
         Where where = Where::current());

// The same without a bound on the place's lines: where the operator asks for one of each event.
void LogEach(Level level, std::string_view message, std::initializer_list<Field> fields,
             Where where);

inline void Verbose(std::string_view m, std::initializer_list<Field> f = {},
                    Where where = Where::current()) {
  Log(Level::kVerbose, m, f, where);
}
inline void Info(std::string_view m, std::initializer_list<Field> f = {},
                 Where where = Where::current()) {
  Log(Level::kInfo, m, f, where);
}
inline void Warning(std::string_view m, std::initializer_list<Field> f = {},
                    Where where = Where::current()) {
  Log(Level::kWarning, m, f, where);
}
inline void Error(std::string_view m, std::initializer_list<Field> f = {},
                  Where where = Where::current()) {
  Log(Level::kError, m, f, where);
}

// `line` as it stands behind time, process and place, whatever the escaping: for records that other
// programs read, which hold no byte of a client.
void Record(Level level, std::string_view line, Where where = Where::current());

// `name=value name="va lue"` as Log appends it; exposed for its test.
std::string FormatFields(std::initializer_list<Field> fields);

}  // namespace inflight::logging
