// SPDX-License-Identifier: Apache-2.0
#include "output_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "artifact/checkpoint.h"
#include "base/status_macros.h"
#include "builder/model_files.h"

namespace inflight::tool {
namespace {

namespace fs = std::filesystem;

constexpr timespec kBetweenLooks = {.tv_sec = 0, .tv_nsec = 20'000'000};

// But for those that the caller had this process ignore, as nohup does of SIGHUP: a signal that is
// blocked waits for sigtimedwait all the same.
sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(&signals, signal);
  }
  return signals;
}

// "rank0.safetensors", "rank12.engine"
bool IsOfRank(const std::string& name) {
  constexpr std::string_view kRank = "rank";
  const size_t digits = name.find_first_not_of("0123456789", kRank.size());
  return name.starts_with(kRank) && digits != std::string::npos && digits > kRank.size() &&
         (name.substr(digits) == ".safetensors" || name.substr(digits) == ".engine");
}

// What makes a folder a checkpoint or an engine.
std::vector<fs::path> ModelFilesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name == artifact::kConfigFile || IsOfRank(name)) files.push_back(entry.path());
  }
  return files;
}

Status SystemError(const fs::path& path, std::string_view what, const std::error_code& error) {
  return Unavailable(fmt::format("{}: {}: {}", path.string(), what, error.message()));
}

}  // namespace

OutputFolder::OutputFolder(fs::path path, bool may_replace)
    : path_(std::move(path)), may_replace_(may_replace) {}

Result<std::unique_ptr<OutputFolder>> OutputFolder::Create(const fs::path& given,
                                                           bool may_replace) {
  std::error_code error;
  fs::path path =
      fs::weakly_canonical(fs::absolute(given, error), error);  // links lead to what they are of
  if (error) return SystemError(given, "cannot be the output directory", error);
  if (!path.has_filename()) path = path.parent_path();
  if (fs::exists(path, error) && !fs::is_directory(path, error))
    return AlreadyExists(given.string() + ": is there and is no directory");
  if (!may_replace && !ModelFilesIn(path).empty())
    return AlreadyExists(given.string() +
                         ": has a model already; --force replaces it, or choose another directory");
  std::unique_ptr<OutputFolder> folder(new OutputFolder(path, may_replace));
  for (fs::path parent = path.parent_path(); !fs::exists(parent, error) && parent.has_filename();
       parent = parent.parent_path())
    folder->made_parent_ = parent;
  const sigset_t signals = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &signals, &folder->former_mask_);
  fs::create_directories(path.parent_path(), error);
  std::string name = (path.parent_path() / ("." + path.filename().string() + ".XXXXXX")).string();
  if (error || mkdtemp(name.data()) == nullptr) {
    if (!error) error = std::error_code(errno, std::generic_category());
    return SystemError(given, "cannot create the directory", error);
  }
  folder->temporary_ = name;
  const mode_t mask = umask(0);
  umask(mask);
  chmod(name.c_str(), 0777 & ~mask);  // as of other folders
  folder->watch_ =
      std::jthread([raw = folder.get()](const std::stop_token& stop) { raw->WatchSignals(stop); });
  return folder;
}

OutputFolder::~OutputFolder() {
  watch_ = {};  // stops and joins
  Remove();
  pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
}

void OutputFolder::WatchSignals(const std::stop_token& stop) const {
  const sigset_t signals = EndingSignals();
  while (!stop.stop_requested()) {
    const int signal = sigtimedwait(&signals, nullptr, &kBetweenLooks);
    if (signal <= 0) continue;
    Remove();
    std::signal(signal, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    raise(signal);
  }
}

// Other threads may be writing: under another name they find the folder no more.
void OutputFolder::Remove() const {
  std::error_code error;
  if (!temporary_.empty() && fs::exists(temporary_, error)) {
    const fs::path gone = temporary_.string() + ".gone";
    fs::rename(temporary_, gone, error);
    fs::remove_all(gone, error);
  }
  if (made_parent_.empty()) return;
  for (fs::path parent = path_.parent_path();; parent = parent.parent_path()) {
    fs::remove(parent, error);  // where nothing is in it
    if (error || parent == made_parent_) return;
  }
}

Status OutputFolder::Merge() const {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(temporary_, error)) files.push_back(entry.path());
  for (const fs::path& file : files) {
    const fs::path to = path_ / file.filename();
    if (!may_replace_ && fs::exists(to, error))
      return AlreadyExists(to.string() + ": is there already; --force replaces it");
  }
  for (const fs::path& former : ModelFilesIn(path_)) fs::remove(former, error);
  if (!builder::TokenizerDir(temporary_).empty())
    RETURN_IF_ERROR(builder::RemoveTokenizerFiles(path_));
  for (const bool is_last : {false, true}) {
    for (const fs::path& file : files) {
      if ((file.filename() == artifact::kConfigFile) != is_last) continue;
      const fs::path to = path_ / file.filename();
      if (fs::is_directory(to, error)) fs::remove_all(to, error);
      fs::rename(file, to, error);
      if (error) return SystemError(to, "cannot be written", error);
    }
  }
  return Status::Ok();
}

Status OutputFolder::Publish() {
  std::error_code error;
  if (fs::exists(path_, error)) return Merge();
  fs::rename(temporary_, path_, error);
  if (error) return SystemError(path_, "cannot be written", error);
  return Status::Ok();
}

}  // namespace inflight::tool
