// SPDX-License-Identifier: Apache-2.0
#include "comm/group_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace inflight::comm {
namespace {

std::span<std::byte> BytesOf(const TensorView& values) {
  return {static_cast<std::byte*>(values.data), values.num_bytes()};
}

// Who leaves while others compute with it ends what they do.
Status Lost(const Status& status) {
  return status.code() == StatusCode::kCancelled ? Unavailable(status.message()) : status;
}

class GroupCommunicator : public Communicator {
 public:
  GroupCommunicator(Group& group, std::vector<int> members)
      : group_(group), members_(std::move(members)) {
    const auto found = std::ranges::find(members_, group.rank());
    CHECK(found != members_.end());
    rank_ = static_cast<int>(found - members_.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  // Each rank adds up one part of the values, which all others send it, and sends them the sum.
  Status AllReduce(const TensorView& values, Stream& stream) override {
    CHECK(values.dtype == DType::kF32);
    const std::span floats(values.as<float>(), static_cast<size_t>(values.num_elements()));
    const std::span mine = PartOf(floats, rank_);
    parts_.resize(static_cast<size_t>(size()));
    for (int step = 1; step < size(); ++step) {
      const int to = (rank_ + step) % size();
      const int from = (rank_ - step + size()) % size();
      std::vector<float>& theirs = parts_[static_cast<size_t>(from)];
      theirs.resize(mine.size());
      RETURN_IF_ERROR(Exchange(to, std::as_bytes(PartOf(floats, to)), from,
                               std::as_writable_bytes(std::span(theirs))));
    }
    parts_[static_cast<size_t>(rank_)].assign(mine.begin(), mine.end());
    AddUp(mine, stream);
    for (int step = 1; step < size(); ++step) {
      const int to = (rank_ + step) % size();
      const int from = (rank_ - step + size()) % size();
      RETURN_IF_ERROR(
          Exchange(to, std::as_bytes(mine), from, std::as_writable_bytes(PartOf(floats, from))));
    }
    return Status::Ok();
  }

  Status AllGather(const TensorView& mine, const TensorView& all, Stream&) override {
    const std::span<std::byte> own = BytesOf(mine);
    const std::span<std::byte> whole = BytesOf(all);
    CHECK_EQ(whole.size(), own.size() * members_.size());
    const auto place = [&](int r) {
      return whole.subspan(static_cast<size_t>(r) * own.size(), own.size());
    };
    std::ranges::copy(own, place(rank_).begin());
    for (int step = 1; step < size(); ++step) {
      const int to = (rank_ + step) % size();
      const int from = (rank_ - step + size()) % size();
      RETURN_IF_ERROR(Exchange(to, own, from, place(from)));
    }
    return Status::Ok();
  }

  Status Send(const TensorView& values, int to, Stream&) override {
    return Lost(group_.Send(MemberAt(to), BytesOf(values)));
  }

  Status Receive(const TensorView& values, int from, Stream&) override {
    const auto received = group_.Receive(MemberAt(from), Deadline::max());
    if (!received.ok()) return Lost(received.status());
    const std::vector<std::byte>& message = *received;
    if (message.size() != values.num_bytes()) {
      Status differs(StatusCode::kDataLoss,
                     "ranks disagree on how many values one sends to the other");
      group_.Abort(differs);
      return differs;
    }
    std::ranges::copy(message, BytesOf(values).begin());
    return Status::Ok();
  }

  void Abort(const Status& reason) override { group_.Abort(reason); }

 private:
  Status Exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) {
    return Lost(group_.Exchange(MemberAt(to), out, MemberAt(from), in));
  }
  int MemberAt(int rank) const { return members_[static_cast<size_t>(rank)]; }

  // What rank r adds up.
  std::span<float> PartOf(std::span<float> values, int r) const {
    const size_t n = members_.size();
    const size_t begin = values.size() * static_cast<size_t>(r) / n;
    return values.subspan(begin, values.size() * static_cast<size_t>(r + 1) / n - begin);
  }

  // In the order of ranks.
  void AddUp(std::span<float> sum, Stream& stream) const {
    constexpr size_t kRun = 4096;
    const auto num_runs = static_cast<int64_t>((sum.size() + kRun - 1) / kRun);
    stream.cpu_pool().ParallelFor(num_runs, [&](int64_t run) {
      const size_t begin = static_cast<size_t>(run) * kRun;
      const size_t end = std::min(begin + kRun, sum.size());
      for (size_t i = begin; i < end; ++i) sum[i] = parts_[0][i];
      for (size_t r = 1; r < parts_.size(); ++r)
        for (size_t i = begin; i < end; ++i) sum[i] += parts_[r][i];
    });
  }

  Group& group_;
  const std::vector<int> members_;  // their ranks in the group
  int rank_ = 0;
  std::vector<std::vector<float>> parts_;  // of AllReduce: what each rank has of this one's part
};

}  // namespace

std::unique_ptr<Communicator> MakeGroupCommunicator(Group& group, std::vector<int> members) {
  return std::make_unique<GroupCommunicator>(group, std::move(members));
}

}  // namespace inflight::comm
