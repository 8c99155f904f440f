// SPDX-License-Identifier: Apache-2.0
#include "line_editor.h"

#include <langinfo.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/create_file.h"
#include "base/file.h"
#include "edit_library.h"
#include "environment.h"

namespace inflight::tool {
namespace {

constexpr uint64_t kMaxHistoryBytes = uint64_t{16} << 20;

// libedit shows and takes characters by the locale; texts of models are UTF-8.
void SetTextLocale() {
  const bool is_set = std::setlocale(LC_CTYPE, "") != nullptr;
  if (!is_set || std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
    std::setlocale(LC_CTYPE, "C.UTF-8");
}

// The newest lines of the file, the oldest first; it is cut to them where it has many more.
std::vector<std::string> ReadHistory(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  const auto text = ReadFile(path, kMaxHistoryBytes);
  if (!text.ok()) return lines;
  std::string_view left = *text;
  while (!left.empty()) {
    const size_t end = left.find('\n');
    lines.emplace_back(left.substr(0, end));
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
  }
  constexpr size_t kMost = LineEditor::kMaxHistory;
  const bool is_long = lines.size() > 2 * kMost;
  if (lines.size() > kMost)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kMost));
  if (!is_long) return lines;
  std::string kept;
  for (const std::string& line : lines) kept += line + "\n";
  if (const auto file = CreateFile(path, Existing::kTruncate); file.ok())
    (void)WriteAll(*file, path, kept);
  return lines;
}

}  // namespace

std::filesystem::path DefaultHistoryFile() {
  if (const std::string state = Environment("XDG_STATE_HOME"); !state.empty())
    return std::filesystem::path(state) / "inflight/chat_history";
  const std::string home = Environment("HOME");
  if (home.empty()) return {};
  return std::filesystem::path(home) / ".local/state/inflight/chat_history";
}

struct LineEditor::Edited {
  const EditCalls& calls;
  LineReader& reader;
  EditLine* line = nullptr;
  History* history = nullptr;
  Descriptor history_file = {};
  std::filesystem::path history_path;
  const char* prompt = "";
  bool was_interrupted = false;

  Edited(const EditCalls& edit, LineReader& lines, const std::filesystem::path& path)
      : calls(edit), reader(lines), history_path(path) {
    line = calls.init("inflight", stdin, stdout, stderr);
    history = calls.history_init();
    if (!ok()) return;
    calls.set(line, EL_CLIENTDATA, this);
    calls.set(line, EL_PROMPT, &Prompt);
    calls.set(line, EL_SIGNAL, 0);  // Ctrl-C is InterruptScope's
    calls.set(line, EL_EDITOR, "emacs");
    calls.set(line, EL_GETCFN, &NextCharacter);
    HistEvent event;
    calls.history(history, &event, H_SETSIZE, kMaxHistory);
    calls.history(history, &event, H_SETUNIQUE, 1);  // no line twice in a row
    calls.set(line, EL_HIST, calls.history, history);
    OpenHistory();
  }
  ~Edited() {
    if (line != nullptr) calls.end(line);
    if (history != nullptr) calls.history_end(history);
  }
  Edited(const Edited&) = delete;
  Edited& operator=(const Edited&) = delete;

  bool ok() const { return line != nullptr && history != nullptr; }

  void Enter(const std::string& text) const {
    HistEvent event;
    calls.history(history, &event, H_ENTER, text.c_str());
  }

 private:
  void OpenHistory() {
    if (history_path.empty()) return;
    for (const std::string& text : ReadHistory(history_path)) Enter(text);
    std::error_code error;
    std::filesystem::create_directories(history_path.parent_path(), error);
    auto opened = CreateFile(history_path, Existing::kAppend);
    if (opened.ok()) history_file = *std::move(opened);
  }

  static Edited& Self(EditLine* line) {
    void* self = nullptr;
    LoadEdit()->get(line, EL_CLIENTDATA, &self);
    return *static_cast<Edited*>(self);
  }
  static char* Prompt(EditLine* line) { return const_cast<char*>(Self(line).prompt); }

  // 1, or 0 at the end of the input, or -1 after Ctrl-C.
  static int NextCharacter(EditLine* line, wchar_t* character) {
    Edited& self = Self(line);
    std::fflush(stdout);
    switch (self.reader.NextCharacter(*character)) {
      case LineEvent::kLine:
        return 1;
      case LineEvent::kEnd:
        return 0;
      case LineEvent::kInterrupted:
        break;
    }
    self.was_interrupted = true;
    errno = EINTR;
    return -1;
  }
};

LineEditor::LineEditor(const std::filesystem::path& history_file)
    : is_terminal_(isatty(STDIN_FILENO) == 1) {
  const std::string terminal = Environment("TERM");
  const bool is_shown = is_terminal_ && isatty(STDOUT_FILENO) == 1;
  if (!is_shown || terminal.empty() || terminal == "dumb") return;
  const EditCalls* const calls = LoadEdit();
  if (calls == nullptr) return;
  SetTextLocale();
  edited_ = std::make_unique<Edited>(*calls, reader_, history_file);
  if (!edited_->ok()) edited_.reset();
}

LineEditor::~LineEditor() = default;

LineEvent LineEditor::Next(const char* prompt, std::string& line) {
  if (edited_ == nullptr) {
    if (is_terminal_) std::fputs(prompt, stdout);
    std::fflush(stdout);
    return reader_.Next(line);
  }
  edited_->prompt = prompt;
  edited_->was_interrupted = false;
  int count = 0;
  const char* const text = edited_->calls.gets(edited_->line, &count);
  if (edited_->was_interrupted) return LineEvent::kInterrupted;
  if (text == nullptr || count <= 0) return LineEvent::kEnd;
  line.assign(text, static_cast<size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  return LineEvent::kLine;
}

void LineEditor::Remember(const std::string& line) {
  if (edited_ == nullptr || line.empty()) return;
  edited_->Enter(line);
  if (edited_->history_file.ok())
    (void)WriteAll(edited_->history_file, edited_->history_path, line + "\n");
}

}  // namespace inflight::tool
