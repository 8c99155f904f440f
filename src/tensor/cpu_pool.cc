// SPDX-License-Identifier: Apache-2.0
// One region at a time. Its items are claimed from `claim_`, a word that holds the region's number
// (epoch) above and the next index below: a worker that comes late claims by compare-and-swap
// against the epoch whose fields it has read, so it can never run an item of a region it has not
// seen.
//
//   caller                                   worker
//   claim_ = (epoch, closed)                 wait until epoch_ changes: spin, then park
//   call_, body_, n_, pending_ = n           read claim_, then call_, body_, n_
//   claim_ = (epoch, 0); epoch_ = epoch      claim, run, --pending_ ... until claims fail
//   claim and run too; wait for pending_ 0
#include "tensor/cpu_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/spin_pause.h"
#include "base/thread_name.h"
#include "tensor/numa.h"

namespace inflight {
namespace {

constexpr uint64_t kIndexMask = 0xffffffffU;  // of claim_; all ones = closed

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Returns whether `done()` came true within `spin`.
template <typename Done>
bool SpinUntil(std::chrono::microseconds spin, const Done& done) {
  if (done()) return true;
  const auto deadline = std::chrono::steady_clock::now() + spin;
  while (std::chrono::steady_clock::now() < deadline)
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      SpinPause();
    }
  return done();
}

}  // namespace

struct CpuPool::Impl {
  explicit Impl(std::chrono::microseconds spin_time) : spin(spin_time) {}
  const std::chrono::microseconds spin;
  std::mutex region;  // held by the caller whose region runs

  // The region; written by its caller while claim_ is closed.
  alignas(64) std::atomic<uint64_t> claim{kIndexMask};
  std::atomic<Call> call{nullptr};
  std::atomic<const void*> body{nullptr};
  std::atomic<uint32_t> n{0};
  std::atomic<int> max_threads{0};

  alignas(64) std::atomic<uint32_t> epoch{0};  // workers wait here
  std::atomic<int> num_parked{0};
  std::atomic<bool> stopping{false};

  alignas(64) std::atomic<uint32_t> pending{0};  // items not yet finished; the caller waits here
  std::atomic<bool> caller_parked{false};

  std::vector<std::thread> workers;

  void WorkOn(uint32_t region_epoch);
  void WorkerLoop(int worker);
  void WaitForEpochAfter(uint32_t seen);
  void WaitForPending();
};

// Claims and runs items of region `region_epoch` until none is left.
void CpuPool::Impl::WorkOn(uint32_t region_epoch) {
  uint64_t word = claim.load(std::memory_order_acquire);
  const Call region_call = call.load(std::memory_order_acquire);
  const void* region_body = body.load(std::memory_order_acquire);
  const uint32_t region_n = n.load(std::memory_order_acquire);
  for (;;) {
    const auto index = static_cast<uint32_t>(word & kIndexMask);
    if (static_cast<uint32_t>(word >> 32) != region_epoch || index >= region_n) return;
    // Succeeds only while the epoch is still ours, that is, while the fields above are the
    // region's.
    if (!claim.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire))
      continue;
    region_call(region_body, index);
    if (pending.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
        caller_parked.load(std::memory_order_seq_cst))
      FutexWakeAll(pending);
    word = claim.load(std::memory_order_acquire);
  }
}

void CpuPool::Impl::WaitForEpochAfter(uint32_t seen) {
  if (SpinUntil(spin, [&] { return epoch.load(std::memory_order_acquire) != seen; })) return;
  num_parked.fetch_add(1, std::memory_order_seq_cst);
  while (epoch.load(std::memory_order_seq_cst) == seen) FutexWait(epoch, seen);
  num_parked.fetch_sub(1, std::memory_order_seq_cst);
}

void CpuPool::Impl::WorkerLoop(int worker) {
  NameThisThread("cpu-pool");
  uint32_t seen = 0;
  for (;;) {
    WaitForEpochAfter(seen);
    seen = epoch.load(std::memory_order_acquire);
    if (stopping.load(std::memory_order_acquire)) return;
    if (worker + 1 < max_threads.load(std::memory_order_acquire)) WorkOn(seen);
  }
}

void CpuPool::Impl::WaitForPending() {
  if (SpinUntil(spin, [&] { return pending.load(std::memory_order_acquire) == 0; })) return;
  caller_parked.store(true, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t left = pending.load(std::memory_order_seq_cst);
    if (left == 0) break;
    FutexWait(pending, left);
  }
  caller_parked.store(false, std::memory_order_relaxed);
}

CpuPool::CpuPool(int num_threads, std::chrono::microseconds spin)
    : impl_(std::make_unique<Impl>(spin)) {
  const int total = num_threads > 0 ? num_threads : NumUsableCores();
  const std::vector<NumaNode>& nodes = UsableNumaNodes();
  for (int i = 0; i + 1 < total; ++i)
    impl_->workers.emplace_back([impl = impl_.get(), &nodes, i, total] {
      const auto num_nodes = static_cast<int>(nodes.size());
      if (num_nodes > 1) RunOn(nodes[static_cast<size_t>(NodeOfThread(i + 1, total, num_nodes))]);
      impl->WorkerLoop(i);
    });
}

CpuPool::~CpuPool() {
  impl_->stopping.store(true, std::memory_order_release);
  impl_->epoch.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(impl_->epoch);
  for (std::thread& worker : impl_->workers) worker.join();
}

int CpuPool::num_threads() const { return static_cast<int>(impl_->workers.size()) + 1; }

void CpuPool::Run(int64_t n, int max_threads, Call call, const void* body) {
  const int limit = max_threads > 0 ? std::min(max_threads, num_threads()) : num_threads();
  if (n <= 1 || limit == 1) {
    for (int64_t i = 0; i < n; ++i) call(body, i);
    return;
  }
  CHECK_LT(n, static_cast<int64_t>(kIndexMask));
  Impl& pool = *impl_;
  const std::lock_guard lock(pool.region);
  const uint32_t epoch = pool.epoch.load(std::memory_order_relaxed) + 1;
  const uint64_t region = uint64_t{epoch} << 32;
  pool.claim.store(region | kIndexMask, std::memory_order_seq_cst);
  pool.call.store(call, std::memory_order_release);
  pool.body.store(body, std::memory_order_release);
  pool.n.store(static_cast<uint32_t>(n), std::memory_order_release);
  pool.max_threads.store(limit, std::memory_order_release);
  pool.pending.store(static_cast<uint32_t>(n), std::memory_order_release);
  pool.claim.store(region, std::memory_order_release);
  pool.epoch.store(epoch, std::memory_order_seq_cst);
  if (pool.num_parked.load(std::memory_order_seq_cst) > 0) FutexWakeAll(pool.epoch);
  pool.WorkOn(epoch);
  pool.WaitForPending();
}

}  // namespace inflight
