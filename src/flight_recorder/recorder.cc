// SPDX-License-Identifier: Apache-2.0
#include "flight_recorder/recorder.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "base/create_file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"
#include "flight_recorder/byte_ring.h"
#include "flight_recorder/journal.h"
#include "inflight/version.h"

namespace inflight::flight_recorder {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRingBytes = size_t{16} << 20;
constexpr std::chrono::milliseconds kPause{20};  // between two looks at the ring

// FILE, and its turn to be FILE.1.
class JournalFile {
 public:
  JournalFile(RecordOptions options, Header header)
      : options_(std::move(options)), header_(std::move(header)) {}

  Status Begin() {
    RETURN_IF_ERROR(MakeRoom());
    ASSIGN_OR_RETURN(file_, CreateFile(options_.file, Existing::kRefuse));
    if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0)
      return SystemError(options_.file, "lock", errno);
    std::string begin(kMagic);
    AppendFrame(RecordKind::kHeader, HeaderText(header_), &begin);
    num_bytes_ = static_cast<int64_t>(begin.size());
    ++header_.part;
    return WriteAll(file_, options_.file, begin);
  }

  // Whole frames. One that no file has room for becomes a gap.
  Status Write(std::string_view frames) {
    while (!frames.empty()) {
      size_t count = 0;
      while (count < frames.size() && num_bytes_ + EndOfFrame(frames, count) <= options_.file_bytes)
        count = static_cast<size_t>(EndOfFrame(frames, count));
      if (count > 0) {
        RETURN_IF_ERROR(WriteAll(file_, options_.file, frames.substr(0, count)));
        num_bytes_ += static_cast<int64_t>(count);
        frames.remove_prefix(count);
        is_new_ = false;
      } else if (is_new_) {
        RETURN_IF_ERROR(WriteGap());
        frames.remove_prefix(static_cast<size_t>(EndOfFrame(frames, 0)));
      } else {
        RETURN_IF_ERROR(Begin());
        is_new_ = true;
      }
    }
    return Status::Ok();
  }

 private:
  static int64_t EndOfFrame(std::string_view frames, size_t at) {
    uint32_t size = 0;
    std::memcpy(&size, frames.data() + at, sizeof(size));
    return static_cast<int64_t>(at + 2 * sizeof(size) + size);
  }

  Status WriteGap() {
    std::string gap;
    const uint64_t one = 1;
    AppendFrame(RecordKind::kGap, {reinterpret_cast<const char*>(&one), sizeof(one)}, &gap);
    num_bytes_ += static_cast<int64_t>(gap.size());
    return WriteAll(file_, options_.file, gap);
  }

  // FILE is of the same model, which is loaded once more and ends its first load later.
  bool IsEarlierLoad() const {
    const Result<Journal> journal = Journal::Open(options_.file);
    return journal.ok() && journal->header().process == header_.process &&
           journal->header().owner == header_.owner;
  }

  // Whether FILE is the one that is written here, and not that of a later load.
  bool HasName() const {
    struct stat own = {};
    struct stat named = {};
    return fstat(file_.get(), &own) == 0 && stat(options_.file.c_str(), &named) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
  }

  // What is no journal keeps its name.
  static Status CheckJournal(const fs::path& path) {
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return Status::Ok();
    ASSIGN_OR_RETURN(const MappedFile bytes, MappedFile::Open(path));
    const std::string_view begin(reinterpret_cast<const char*>(bytes.bytes().data()),
                                 std::min(bytes.bytes().size(), kMagic.size()));
    if (kMagic.starts_with(begin)) return Status::Ok();
    return InvalidArgument(
        fmt::format("--record: {} is there and is no journal; name another", path.string()));
  }

  // What is at FILE becomes FILE.1, where it is a journal that nobody else writes.
  Status MakeRoom() {
    RETURN_IF_ERROR(CheckJournal(EarlierPart(options_.file)));
    if (!file_.ok()) {
      std::error_code error;
      if (!fs::exists(fs::symlink_status(options_.file, error))) return Status::Ok();
      ASSIGN_OR_RETURN(const Descriptor there, CreateFile(options_.file, Existing::kAppend));
      const bool is_written = flock(there.get(), LOCK_EX | LOCK_NB) != 0;
      if (is_written && !IsEarlierLoad())
        return AlreadyExists(fmt::format(
            "--record: {} is written for another model or by another server; with {{model}} in "
            "the name each model has a file",
            options_.file.string()));
      RETURN_IF_ERROR(CheckJournal(options_.file));
    }
    if (file_.ok() && !HasName())
      return FailedPrecondition(options_.file.string() + " is another file by now");
    std::error_code error;
    fs::rename(options_.file, EarlierPart(options_.file), error);
    if (error) return SystemError(options_.file, "rename", error.value());
    return Status::Ok();
  }

  const RecordOptions options_;
  Header header_;
  Descriptor file_;
  int64_t num_bytes_ = 0;
  bool is_new_ = true;  // nothing but its header is there
};

class Recorder : public TurnBuilder {
 public:
  Recorder(const RecordOptions& options, JournalFile file)
      : TurnBuilder(options.keeps_prompts), file_(std::move(file)), ring_(kRingBytes) {
    thread_ = std::thread([this] { Run(); });
  }

  ~Recorder() override {
    is_stopping_.store(true);
    WakeWriter();
    thread_.join();
    if (num_lost_ == 0) return;
    frames_.clear();
    AppendGap();
    Write(frames_);
  }

 protected:
  void TakeTurn(const TurnRecord& turn) override {
    record_.clear();
    AppendTurn(turn, &record_);
    frames_.clear();
    if (num_lost_ > 0) AppendGap();
    AppendFrame(RecordKind::kTurn, record_, &frames_);
    num_lost_ = ring_.Push(frames_) ? 0 : num_lost_ + 1;
    if (is_sleeping_.load() != 0) WakeWriter();
  }

 private:
  // Of the turns for which there was no room.
  void AppendGap() {
    AppendFrame(RecordKind::kGap, {reinterpret_cast<const char*>(&num_lost_), sizeof(num_lost_)},
                &frames_);
  }

  void WakeWriter() {
    is_sleeping_.store(0);
    is_sleeping_.notify_one();
  }

  void Run() {
    NameThisThread("inflight-record");
    std::string frames;
    while (true) {
      const bool is_last = is_stopping_.load();
      frames.clear();
      // Without memory they stay where they are, and turns for which there is no room are counted.
      const bool is_done = RunTurn("inflight-record", [&] {
        ring_.Take(&frames);
        Write(frames);
      });
      if (is_last) return;
      if (!is_done || !frames.empty()) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      // Whoever pushes then either sees the flag, or is seen.
      is_sleeping_.store(1);
      if (ring_.empty() && !is_stopping_.load()) is_sleeping_.wait(1);
      is_sleeping_.store(0);
    }
  }

  void Write(std::string_view frames) {
    if (is_broken_) return;
    const Status written = StatusOf([&] { return file_.Write(frames); });
    if (written.ok()) return;
    is_broken_ = true;
    logging::Error("the journal ends: it cannot be written", {{"status", written.ToString()}});
  }

  JournalFile file_;  // the thread's, as long as it runs
  bool is_broken_ = false;
  ByteRing ring_;
  std::string record_, frames_;
  uint64_t num_lost_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::atomic<uint32_t> is_sleeping_{0};  // 1: the thread waits to be woken
  std::thread thread_;
};

std::string RandomName() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

int64_t NumberOfThisProcess() {
  static const int64_t number = [] {
    std::random_device random;
    return static_cast<int64_t>((uint64_t{random()} << 31) | (random() >> 1));
  }();
  return number;
}

}  // namespace

Result<std::unique_ptr<executor::LoopWatcher>> Record(const RecordOptions& options, Header header) {
  header.version = kVersion;
  header.run = RandomName();
  header.part = 0;
  header.process = NumberOfThisProcess();
  header.has_prompts = options.keeps_prompts;
  header.began_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
  JournalFile file(options, std::move(header));
  RETURN_IF_ERROR(file.Begin());
  logging::Info("recording", {{"file", options.file.string()},
                              {"prompts", options.keeps_prompts ? "kept" : "hashed"}});
  return std::unique_ptr<executor::LoopWatcher>(
      std::make_unique<Recorder>(options, std::move(file)));
}

}  // namespace inflight::flight_recorder
