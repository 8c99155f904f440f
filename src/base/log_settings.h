// SPDX-License-Identifier: Apache-2.0
// What of the log is printed and how, as a running server's clients read and change it
// (docs/reference/protocol/http.md, "logging").
//
// Threads: any. A line costs one relaxed load to find out whether it is printed; each setting is
// changed by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "inflight/status.h"

namespace inflight::logging {

enum class Format : uint8_t {
  kDefault,  // I1121 10:02:03.123456 1234 load.cc:88] "text"
  kIso8601,  // 2026-11-21T10:02:03Z I 1234 load.cc:88] "text"
};

std::string_view FormatName(Format format);  // "default", "ISO8601"
std::optional<Format> FindFormat(std::string_view name);

struct Settings {
  bool info = true;
  bool warning = true;
  bool error = true;
  uint32_t verbose_level = 0;  // from 1 on verbose lines are printed
  Format format = Format::kDefault;
  std::string file;  // empty: the console
};

Settings CurrentSettings();

// Levels need not be in a row: warnings may be off and infos on. kVerbose is SetVerboseLevel(1 |
// 0).
void SetEnabled(Level level, bool is_enabled);
void SetVerboseLevel(uint32_t verbose_level);
void SetFormat(Format format);

// --- once, before other threads log ---
enum class Console : uint8_t {
  kStandardError,  // all of it: standard output is for results
  kBoth,           // details and information on standard output, the rest on standard error
};
void SetConsole(Console console);
// All lines go to the end of this file. kInvalidArgument names it and the system's reason.
Status SetFile(const std::string& path);
// false: messages stand as they are, without quotes, and may have line feeds.
void SetEscaping(bool is_on);
// The log of a program that this one is a part of: it says what is printed, and prints it.
struct HostLog {
  bool (*is_enabled)(Level level);
  void (*write)(Level level, const char* file, int line, const char* message);
};
// All lines go there, each by itself; the settings above have no effect any more. `log` lives as
// long as the process.
void SetHostLog(const HostLog& log);
// What a value of TRITON_SERVER_ESCAPE_LOG_MESSAGES asks for; null: it is not set.
bool EscapingOf(const char* variable);

}  // namespace inflight::logging
