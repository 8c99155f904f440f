// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/create_file.h"
#include "base/file.h"
#include "base/log_budget.h"
#include "base/log_settings.h"
#include "base/log_table.h"

namespace inflight::logging {
namespace {

constexpr uint8_t Bit(Level level) {
  return static_cast<uint8_t>(1U << static_cast<unsigned>(level));
}

// The time is that of UTC.
constexpr const char* Pattern(Format format) {
  return format == Format::kIso8601 ? "%Y-%m-%dT%H:%M:%SZ %L %P %v" : "%L%m%d %H:%M:%S.%f %P %v";
}

constinit std::atomic<uint8_t> enabled{Bit(Level::kInfo) | Bit(Level::kWarning) |
                                       Bit(Level::kError)};
constinit std::atomic<uint32_t> verbosity{0};
constinit std::atomic<Format> line_format{Format::kDefault};
constinit std::atomic<bool> is_escaping{true};
constinit std::atomic<const HostLog*> host_log{nullptr};

using Logger = spdlog::logger;
using FileSink = spdlog::sinks::stdout_sink_base<spdlog::details::console_mutex>;

std::shared_ptr<Logger> MakeLogger(const spdlog::sink_ptr& sink) {
  auto made = std::make_shared<Logger>("inflight", sink);
  made->set_pattern(Pattern(line_format), spdlog::pattern_time_type::utc);
  made->set_level(spdlog::level::trace);  // Enabled says what is printed
  made->flush_on(spdlog::level::trace);
  return made;
}

struct Outputs {
  std::shared_ptr<Logger> information;  // and details
  std::shared_ptr<Logger> problems;
  std::string file;
  const Outputs* before = nullptr;
};

// Never destroyed, nor are those before them: threads may log while the process exits.
std::atomic<const Outputs*>& CurrentOutputs() {
  static std::atomic<const Outputs*> outputs = [] {
    const auto logger = MakeLogger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
    return new Outputs{logger, logger, ""};
  }();
  return outputs;
}

void SetOutputs(std::shared_ptr<Logger> information, std::shared_ptr<Logger> problems,
                std::string file) {
  auto& current = CurrentOutputs();
  current.store(new Outputs{std::move(information), std::move(problems), std::move(file),
                            current.load(std::memory_order_acquire)},
                std::memory_order_release);
}

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kVerbose:  // has the letter of information
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
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f || c == 0xc2) return true;
  return false;
}

// Appends `text`, with control characters other than line feeds as `control` and two digits, also
// those that UTF-8 writes in two bytes (U+0080 to U+009F), which terminals obey too; quotes and
// backslashes are escaped too where `quoted`.
void AppendEscaped(std::string& out, std::string_view text, bool quoted,
                   std::string_view control = "\\x") {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (c == 0xc2 && next >= 0x80 && next < 0xa0) {
      fmt::format_to(std::back_inserter(out), "{}{:02x}", control, next);
      ++i;
    } else if (quoted && (c == '"' || c == '\\')) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c < ' ' || c == 0x7f) {
      fmt::format_to(std::back_inserter(out), "{}{:02x}", control, c);
    } else {
      out += static_cast<char>(c);
    }
  }
}

// A JSON string.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  AppendEscaped(out, text, /*quoted=*/true, "\\u00");
  return out += '"';
}

// What a client sends may be long.
constexpr size_t kMaxValueBytes = 4096;

// Never destroyed, as outputs are.
LogBudget& Budget() {
  static LogBudget& budget = *new LogBudget;
  return budget;
}

std::string_view NameOf(std::string_view path) {
  path.remove_prefix(path.find_last_of('/') + 1);  // npos + 1 is 0
  return path;
}

// `load.cc:88] message`
std::string PlacedAsItIs(const Where& where, std::string_view message) {
  return fmt::format("{}:{}] {}", NameOf(where.file_name()), where.line(), message);
}

// `load.cc:88] "message"`
std::string Placed(const Where& where, std::string_view message) {
  if (!is_escaping.load(std::memory_order_relaxed)) return PlacedAsItIs(where, message);
  return PlacedAsItIs(where, Quoted(message));
}

// False without a host.
bool WriteToHost(Level level, const Where& where, const std::string& message) {
  const HostLog* const host = host_log.load(std::memory_order_acquire);
  if (host == nullptr) return false;
  // The end of the file's name is the end of the text that the compiler keeps.
  host->write(level, NameOf(where.file_name()).data(), static_cast<int>(where.line()),
              message.c_str());
  return true;
}

void Print(Level level, std::string_view line) {
  const Outputs& outputs = *CurrentOutputs().load(std::memory_order_acquire);
  Logger& logger = level >= Level::kWarning ? *outputs.problems : *outputs.information;
  logger.log(ToSpdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

// Whether the place may have another line. Tells first what was left out of others.
bool HasRoom(const Where& where) {
  const int64_t now_ns = Clock::System().NowNs();
  for (const LogBudget::LeftOut& left_out : Budget().TakeLeftOut(now_ns)) {
    if (!Enabled(Level::kWarning)) continue;
    const std::string text = fmt::format(
        "lines of the log were left out: {} of {}:{}, which may have {} at once and {} a second",
        left_out.count, NameOf(left_out.file), left_out.line, LogBudget::kBurst,
        LogBudget::kPerSecond);
    const Where here = Where::current();
    if (!WriteToHost(Level::kWarning, here, text)) Print(Level::kWarning, Placed(here, text));
  }
  return Budget().Take(where.file_name(), where.line(), now_ns);
}

}  // namespace

std::string Field::Number(double v) { return fmt::format("{:g}", v); }

void SetLevel(Level level) {
  for (const Level each : {Level::kVerbose, Level::kInfo, Level::kWarning, Level::kError}) {
    SetEnabled(each, each >= level);
  }
}

bool Enabled(Level level) {
  if (const HostLog* const host = host_log.load(std::memory_order_acquire))
    return host->is_enabled(level);
  return (enabled.load(std::memory_order_relaxed) & Bit(level)) != 0;
}

std::string_view FormatName(Format format) {
  return format == Format::kIso8601 ? "ISO8601" : "default";
}

std::optional<Format> FindFormat(std::string_view name) {
  for (const Format format : {Format::kDefault, Format::kIso8601}) {
    if (name == FormatName(format)) return format;
  }
  return std::nullopt;
}

Settings CurrentSettings() {
  return {.info = Enabled(Level::kInfo),
          .warning = Enabled(Level::kWarning),
          .error = Enabled(Level::kError),
          .verbose_level = verbosity.load(std::memory_order_relaxed),
          .format = line_format.load(std::memory_order_relaxed),
          .file = CurrentOutputs().load(std::memory_order_acquire)->file};
}

void SetEnabled(Level level, bool is_enabled) {
  if (level == Level::kVerbose) return SetVerboseLevel(is_enabled ? 1 : 0);
  if (is_enabled) {
    enabled.fetch_or(Bit(level), std::memory_order_relaxed);
  } else {
    enabled.fetch_and(static_cast<uint8_t>(~Bit(level)), std::memory_order_relaxed);
  }
}

void SetVerboseLevel(uint32_t verbose_level) {
  verbosity.store(verbose_level, std::memory_order_relaxed);
  if (verbose_level > 0) {
    enabled.fetch_or(Bit(Level::kVerbose), std::memory_order_relaxed);
  } else {
    enabled.fetch_and(static_cast<uint8_t>(~Bit(Level::kVerbose)), std::memory_order_relaxed);
  }
}

void SetFormat(Format format) {
  line_format.store(format, std::memory_order_relaxed);
  const Outputs& outputs = *CurrentOutputs().load(std::memory_order_acquire);
  for (const auto& logger : {outputs.information, outputs.problems})
    logger->set_pattern(Pattern(format), spdlog::pattern_time_type::utc);
}

void SetConsole(Console console) {
  const auto problems = MakeLogger(std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const auto information = console == Console::kStandardError
                               ? problems
                               : MakeLogger(std::make_shared<spdlog::sinks::stdout_sink_mt>());
  SetOutputs(information, problems, "");
}

Status SetFile(const std::string& path) {
  const auto opened = CreateFile(path, Existing::kAppend);
  if (!opened.ok()) return InvalidArgument(opened.status().message());
  std::FILE* const file = fdopen(fcntl(opened->get(), F_DUPFD_CLOEXEC, 0), "a");  // is never closed
  if (file == nullptr) return InvalidArgument(SystemError(path, "open", errno).message());
  const auto logger = MakeLogger(std::make_shared<FileSink>(file));
  SetOutputs(logger, logger, path);
  return Status::Ok();
}

void SetEscaping(bool is_on) { is_escaping.store(is_on, std::memory_order_relaxed); }

void SetHostLog(const HostLog& log) { host_log.store(&log, std::memory_order_release); }

bool EscapingOf(const char* variable) {
  return variable == nullptr || std::string_view(variable) != "0";
}

std::string FormatFields(std::initializer_list<Field> fields) {
  std::string out;
  for (const Field& field : fields) {
    if (!out.empty()) out += ' ';
    out += field.name;
    out += '=';
    const std::string_view value = std::string_view(field.value).substr(0, kMaxValueBytes);
    const size_t cut_bytes = field.value.size() - value.size();
    const bool quoted = cut_bytes > 0 || NeedsQuotes(value);
    if (quoted) out += '"';
    AppendEscaped(out, value, quoted);
    if (cut_bytes > 0) fmt::format_to(std::back_inserter(out), "... {} more bytes", cut_bytes);
    if (quoted) out += '"';
  }
  return out;
}

void Log(Level level, std::string_view message, std::initializer_list<Field> fields, Where where) {
  if (!Enabled(level)) return;
  try {
    if (level != Level::kVerbose && !HasRoom(where)) return;
  } catch (const std::bad_alloc&) {
    return;
  }
  LogEach(level, message, fields, where);
}

void LogEach(Level level, std::string_view message, std::initializer_list<Field> fields,
             Where where) {
  if (!Enabled(level)) return;
  try {
    std::string text(message);
    if (fields.size() > 0) text += " " + FormatFields(fields);
    if (!WriteToHost(level, where, text)) Print(level, Placed(where, text));
  } catch (const std::bad_alloc&) {
    return;  // handlers of exceptions log: one of theirs would end the process
  }
}

void Record(Level level, std::string_view line, Where where) {
  if (!Enabled(level)) return;
  if (level != Level::kVerbose && !HasRoom(where)) return;
  if (!WriteToHost(level, where, std::string(line))) Print(level, PlacedAsItIs(where, line));
}

void Table(std::string_view message, std::string_view lines, Where where) {
  if (!Enabled(Level::kInfo) || !HasRoom(where)) return;
  const bool has_host = WriteToHost(Level::kInfo, where, std::string(message));
  std::string text = has_host ? "" : Placed(where, message);
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    if (!has_host) text += '\n';
    AppendEscaped(text, lines.substr(0, end), /*quoted=*/false);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    if (has_host) WriteToHost(Level::kInfo, where, std::exchange(text, ""));
  }
  if (!has_host) Print(Level::kInfo, text);
}

}  // namespace inflight::logging
