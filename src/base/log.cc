// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace inflight::logging {
namespace {

spdlog::logger& Logger() {
  // Never destroyed: threads may log while the process exits.
  static auto* logger = [] {
    auto* made = new spdlog::logger("inflight", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%L%m%d %H:%M:%S.%f %t %v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *logger;
}

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kVerbose:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

bool NeedsQuotes(std::string_view value) {
  if (value.empty()) return true;
  for (unsigned char c : value)
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return true;
  return false;
}

// Appends `text`, with control characters as \xNN; quotes and backslashes are escaped too where
// `quoted`.
void AppendEscaped(std::string& out, std::string_view text, bool quoted) {
  for (unsigned char c : text) {
    if (quoted && (c == '"' || c == '\\')) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c < ' ' || c == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
}

}  // namespace

std::string Field::Number(double v) { return fmt::format("{:g}", v); }

void SetLevel(Level level) { Logger().set_level(ToSpdlog(level)); }

bool Enabled(Level level) { return Logger().should_log(ToSpdlog(level)); }

std::string FormatFields(std::initializer_list<Field> fields) {
  std::string out;
  for (const Field& field : fields) {
    if (!out.empty()) out += ' ';
    out += field.name;
    out += '=';
    const bool quoted = NeedsQuotes(field.value);
    if (quoted) out += '"';
    AppendEscaped(out, field.value, quoted);
    if (quoted) out += '"';
  }
  return out;
}

void Log(Level level, std::string_view message, std::initializer_list<Field> fields) {
  if (!Enabled(level)) return;
  std::string line;
  AppendEscaped(line, message, /*quoted=*/false);
  if (fields.size() > 0) line += " " + FormatFields(fields);
  Logger().log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace inflight::logging
