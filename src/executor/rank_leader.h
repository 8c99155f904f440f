// SPDX-License-Identifier: Apache-2.0
// A model that is split over ranks: the first of them, the leader, has the sequences, draws tokens
// and answers. The others compute their parts of what it tells them, call by call, and keep
// nothing but weights and the KV cache. A call is flat bytes, the same for every follower, so that
// followers may be threads of the leader's process or processes of other hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "executor/adapter_cache.h"
#include "executor/kv_storage.h"
#include "executor/memory_plan.h"
#include "model/decoder.h"
#include "scheduler/step_plan.h"

namespace inflight::executor {

class CallReader;

// All ranks but the leader.
class RankFollowers {
 public:
  virtual ~RankFollowers() = default;

  // Hands the call to each of them, in the order of calls; on return `call` may be overwritten. An
  // error where one of them failed before, with its reason.
  virtual Status Tell(std::span<const std::byte> call) = 0;
  // Why they compute no more, also while nothing is told; OK while they do.
  virtual Status status() const { return Status::Ok(); }
  // Ends what the ranks wait for from each other.
  virtual void Abort(const Status& reason) = 0;
};

// Tells followers what the leader is about to do itself.
// Threads: one.
class RankLeader {
 public:
  RankLeader(std::unique_ptr<RankFollowers> followers, int block_size)
      : followers_(std::move(followers)), block_size_(block_size) {}

  // Rows of the batch that have an adapter.
  struct AdapterRow {
    uint64_t serial = 0;  // model::Adapter's
    int32_t first_token = 0;
    int32_t num_tokens = 0;
  };
  Status Forward(const model::Batch& batch, std::span<const AdapterRow> adapters);
  // Before the first row that has the adapter. The others forget those that `cache` has not any
  // more: no row has them.
  Status UseAdapter(const model::Adapter& adapter, const AdapterCache& cache);
  Status Logits(const TensorView& rows);  // of Decoder::Logits
  // Of Decoder::Embed and HeadLogits: `ids` [n] int32, `x` [n, hidden_size].
  Status Embed(const TensorView& ids);
  Status HeadLogits(const TensorView& x);
  // Of KvStorage. What fails here, the next Forward says.
  void CopyBlocks(std::span<const scheduler::HostBlockCopy> copies);
  void Copy(int group, std::span<const kv_cache::BlockCopy> copies);
  void Move(int group, std::span<const TokenMove> moves);

  Status status() const { return followers_->status(); }
  void Abort(const Status& reason) { followers_->Abort(reason); }

 private:
  Status Tell();  // call_, which has a head
  template <typename Item>
  void TellItems(int kind, std::span<const Item> items, int group = 0);
  void AppendTables(const ops::PagedBatch& paged, int num_blocks);

  std::unique_ptr<RankFollowers> followers_;
  const int block_size_;
  std::vector<std::byte> call_;
  uint64_t told_hash_ = 0;
  std::vector<uint64_t> told_;  // serials of adapters that the others have
  Status failed_;
};

// What a follower needs to know of the leader's plan.
struct FollowerShape {
  int max_num_tokens = 0;
  int max_logits = 0;
  int block_size = 0;
  std::vector<int64_t> num_blocks;  // of each KV group, those of the host pool too
  // Of the adapters that the leader keeps, whole; what a rank has of them is no more.
  uint64_t adapter_bytes = 0;
  model::AttentionWindows windows;
  model::HeadInputs head_inputs;  // that the leader has others send
};
FollowerShape FollowerShapeOf(const MemoryPlan& leaders);

// How many of those blocks of the first group a rank has room for in `bytes`, with as many of the
// other groups as the leader's plan then has at most.
int64_t FollowerBlocks(const model::ModelConfig& config, DeviceKind device,
                       const FollowerShape& shape, uint64_t bytes);

// Does what it is told.
// Threads: one at a time.
class RankFollower {
 public:
  // Takes workspace, KV cache and what adapters may take from the device's ledger. `groups` outlive
  // it.
  static Result<std::unique_ptr<RankFollower>> Create(std::shared_ptr<const model::Engine> engine,
                                                      Device& device, const FollowerShape& shape,
                                                      const ops::OpTable& ops,
                                                      comm::RankGroups groups);

  // `call` is aligned as operator new does. kInvalidArgument where it is none of a leader's;
  // kDataLoss where it is not what the leader told behind all that came before.
  Status Do(std::span<const std::byte> call);

 private:
  explicit RankFollower(Device& device) : stream_(device) {}
  Status Forward(CallReader& reader);
  Status CheckGroup(int group) const;

  Status AddAdapter(CallReader& reader);

  // Of an adapter, this rank's part: of a multiple of 64 bytes.
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct OwnAdapter {
    model::Adapter adapter;
    std::vector<Line> lines;
  };
  uint64_t heard_hash_ = 0;
  inflight::Stream stream_;  // executor::Stream is another
  std::shared_ptr<const model::Engine> engine_;
  model::OwnBiases own_biases_;
  std::unique_ptr<model::Decoder> decoder_;
  KvStorage kv_;
  MemoryShare adapters_share_;               // which these are booked by
  std::map<uint64_t, OwnAdapter> adapters_;  // by the leader's serial
  ops::LoraBatch step_adapters_;
};

}  // namespace inflight::executor
