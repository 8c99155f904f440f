// SPDX-License-Identifier: Apache-2.0
#include "comm/shared_group.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace inflight::comm {
namespace {

constexpr size_t kLine = 64;  // what one rank writes lies apart from what another does
constexpr std::chrono::microseconds kSpin{20};
constexpr std::chrono::milliseconds kAbortPatience{100};
constexpr timespec kNap = {.tv_sec = 0, .tv_nsec = 50'000'000};  // then an abort is looked for

// A number that only grows, modulo 2^32, which one rank writes and others wait for.
struct alignas(kLine) Counter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> num_sleepers;

  bool IsAt(uint32_t target) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
  void Advance() {
    value.fetch_add(1, std::memory_order_seq_cst);
    if (num_sleepers.load(std::memory_order_seq_cst) != 0)
      syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);  // for processes that share it

struct alignas(kLine) Head {
  std::atomic<uint32_t> abort_state;  // 0 none, 1 being written, 2 written
  bool is_abort_for_memory;
  std::array<char, 500> abort_reason;
};

// Where rank `from` puts what rank `to` takes.
struct Mailbox {
  Counter written;
  Counter taken;
};

class Member : public Communicator {
 public:
  Member(std::span<std::byte> region, int rank, int size, std::function<Status()> alive)
      : rank_(rank), size_(size), alive_(std::move(alive)) {
    CHECK_GE(region.size(), SharedGroup::RegionBytes(size));
    CHECK_EQ(reinterpret_cast<uintptr_t>(region.data()) % kLine, 0u);
    std::byte* at = region.data();
    const auto place = [&](size_t bytes) {
      std::byte* const here = at;
      at += bytes;
      return here;
    };
    const auto n = static_cast<size_t>(size);
    head_ = reinterpret_cast<Head*>(place(sizeof(Head)));
    arrived_ = reinterpret_cast<Counter*>(place(n * sizeof(Counter)));
    mailboxes_ = reinterpret_cast<Mailbox*>(place(n * n * sizeof(Mailbox)));
    pieces_ = place(2 * n * SharedGroup::kPieceBytes);
    letters_ = place(n * n * SharedGroup::kPieceBytes);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status AllReduce(const TensorView& values, Stream& stream) override {
    CHECK(values.dtype == DType::kF32);
    auto* const floats = values.as<float>();
    const int64_t total = values.num_elements();
    constexpr int64_t kStep = SharedGroup::kPieceBytes / sizeof(float);
    for (int64_t done = 0; done < total; done += kStep) {
      const int64_t n = std::min(kStep, total - done);
      std::memcpy(Piece(rank_), floats + done, static_cast<size_t>(n) * sizeof(float));
      RETURN_IF_ERROR(Barrier());
      const int64_t begin = n * rank_ / size_;
      AddUp(begin, n * (rank_ + 1) / size_, stream);
      RETURN_IF_ERROR(Barrier());
      std::memcpy(floats + done, Piece(0), static_cast<size_t>(n) * sizeof(float));
      turn_ ^= 1;
    }
    return Status::Ok();
  }

  Status AllGather(const TensorView& mine, const TensorView& all, Stream&) override {
    const size_t total = mine.num_bytes();
    CHECK_EQ(all.num_bytes(), total * static_cast<size_t>(size_));
    const auto* const from = static_cast<const std::byte*>(mine.data);
    auto* const to = static_cast<std::byte*>(all.data);
    for (size_t done = 0; done < total; done += SharedGroup::kPieceBytes) {
      const size_t n = std::min(SharedGroup::kPieceBytes, total - done);
      std::memcpy(Piece(rank_), from + done, n);
      RETURN_IF_ERROR(Barrier());
      for (int r = 0; r < size_; ++r)
        std::memcpy(to + static_cast<size_t>(r) * total + done, Piece(r), n);
      turn_ ^= 1;
    }
    return Status::Ok();
  }

  Status Send(const TensorView& values, int to, Stream&) override {
    Mailbox& box = BoxOf(rank_, to);
    const auto* const from = static_cast<const std::byte*>(values.data);
    for (size_t done = 0; done < values.num_bytes(); done += SharedGroup::kPieceBytes) {
      RETURN_IF_ERROR(WaitFor(box.taken, box.written.value.load(std::memory_order_relaxed)));
      std::memcpy(Letter(rank_, to), from + done,
                  std::min(SharedGroup::kPieceBytes, values.num_bytes() - done));
      box.written.Advance();
    }
    return Status::Ok();
  }

  Status Receive(const TensorView& values, int from, Stream&) override {
    Mailbox& box = BoxOf(from, rank_);
    auto* const to = static_cast<std::byte*>(values.data);
    for (size_t done = 0; done < values.num_bytes(); done += SharedGroup::kPieceBytes) {
      RETURN_IF_ERROR(WaitFor(box.written, box.taken.value.load(std::memory_order_relaxed) + 1));
      std::memcpy(to + done, Letter(from, rank_),
                  std::min(SharedGroup::kPieceBytes, values.num_bytes() - done));
      box.taken.Advance();
    }
    return Status::Ok();
  }

  void Abort(const Status& reason) override {
    uint32_t none = 0;
    if (!head_->abort_state.compare_exchange_strong(none, 1)) return;
    const std::string& text = reason.message();
    head_->is_abort_for_memory = reason.reason() == Reason::kOutOfMemory;
    const size_t n = std::min(text.size(), head_->abort_reason.size() - 1);
    std::memcpy(head_->abort_reason.data(), text.data(), n);
    head_->abort_reason[n] = '\0';
    head_->abort_state.store(2, std::memory_order_release);
    const auto wake = [](Counter& counter) {
      syscall(SYS_futex, &counter.value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    };
    for (int r = 0; r < size_; ++r) wake(arrived_[r]);
    for (int i = 0; i < size_ * size_; ++i) {
      wake(mailboxes_[i].written);
      wake(mailboxes_[i].taken);
    }
  }

 private:
  std::byte* Piece(int r) const {
    return pieces_ + static_cast<size_t>(2 * r + turn_) * SharedGroup::kPieceBytes;
  }
  std::byte* Letter(int from, int to) const {
    return letters_ + static_cast<size_t>(from * size_ + to) * SharedGroup::kPieceBytes;
  }
  Mailbox& BoxOf(int from, int to) const { return mailboxes_[from * size_ + to]; }

  // Elements [begin, end) of all ranks' pieces, into that of rank 0.
  void AddUp(int64_t begin, int64_t end, Stream& stream) const {
    constexpr int64_t kRun = 4096;
    stream.cpu_pool().ParallelFor((end - begin + kRun - 1) / kRun, [&](int64_t item) {
      const int64_t first = begin + item * kRun;
      const int64_t last = std::min(first + kRun, end);
      auto* const sum = reinterpret_cast<float*>(Piece(0));
      for (int r = 1; r < size_; ++r) {
        const auto* const add = reinterpret_cast<const float*>(Piece(r));
        for (int64_t i = first; i < last; ++i) sum[i] += add[i];
      }
    });
  }

  Status Barrier() {
    arrived_[rank_].Advance();
    ++num_barriers_;
    for (int r = 0; r < size_; ++r) RETURN_IF_ERROR(WaitFor(arrived_[r], num_barriers_));
    return Status::Ok();
  }

  Status WaitFor(Counter& counter, uint32_t target) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    while (!counter.IsAt(target)) {
      if (head_->abort_state.load(std::memory_order_acquire) != 0) break;
      if (std::chrono::steady_clock::now() < end) continue;
      counter.num_sleepers.fetch_add(1, std::memory_order_seq_cst);
      const uint32_t seen = counter.value.load(std::memory_order_seq_cst);
      const bool has_napped =
          static_cast<int32_t>(seen - target) < 0 &&
          syscall(SYS_futex, &counter.value, FUTEX_WAIT, seen, &kNap, nullptr, 0) != 0 &&
          errno == ETIMEDOUT;
      counter.num_sleepers.fetch_sub(1, std::memory_order_seq_cst);
      if (!has_napped || alive_ == nullptr) continue;
      if (const Status status = alive_(); !status.ok()) Abort(status);
    }
    return CheckAlive();
  }

  Status CheckAlive() const {
    if (head_->abort_state.load(std::memory_order_acquire) == 0) return Status::Ok();
    const auto end = std::chrono::steady_clock::now() + kAbortPatience;
    while (head_->abort_state.load(std::memory_order_acquire) != 2) {  // who aborts is writing why
      if (std::chrono::steady_clock::now() > end) return Unavailable("a rank ended as it aborted");
      std::this_thread::yield();
    }
    if (head_->is_abort_for_memory) return OutOfMemory(head_->abort_reason.data());
    return Unavailable(head_->abort_reason.data());
  }

  const int rank_, size_;
  const std::function<Status()> alive_;
  Head* head_ = nullptr;
  Counter* arrived_ = nullptr;    // [size] barriers that a rank came to
  Mailbox* mailboxes_ = nullptr;  // [from][to]
  std::byte* pieces_ = nullptr;   // [size][2][kPieceBytes]
  std::byte* letters_ = nullptr;  // [from][to][kPieceBytes]
  uint32_t num_barriers_ = 0;
  int turn_ = 0;
};

}  // namespace

size_t SharedGroup::RegionBytes(int size) {
  const auto n = static_cast<size_t>(size);
  return sizeof(Head) + n * sizeof(Counter) + n * n * sizeof(Mailbox) +
         (2 * n + n * n) * kPieceBytes;
}

std::unique_ptr<Communicator> SharedGroup::Join(std::span<std::byte> region, int rank, int size,
                                                std::function<Status()> alive) {
  CHECK(size >= 1 && size <= kMaxRanks && rank >= 0 && rank < size);
  return std::make_unique<Member>(region, rank, size, std::move(alive));
}

ThreadGroup::ThreadGroup(int size) {
  const size_t num_bytes = SharedGroup::RegionBytes(size);
  // Pages that nobody writes take no memory: a stage sends to two others at most.
  void* const region =
      mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(region != MAP_FAILED);
  region_ = {static_cast<std::byte*>(region), num_bytes};
  for (int r = 0; r < size; ++r) ranks_.push_back(SharedGroup::Join(region_, r, size));
}

ThreadGroup::~ThreadGroup() { munmap(region_.data(), region_.size()); }

}  // namespace inflight::comm
