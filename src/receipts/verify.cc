// SPDX-License-Identifier: Apache-2.0
#include "receipts/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "base/status_macros.h"
#include "receipts/hashes.h"

namespace inflight::receipts {
namespace {

struct Output {
  std::vector<TokenId> ids;
  std::vector<float> log_probs;
  FinishReason reason = FinishReason::kNotFinished;
};

// Takes the one answer to a request that does not stream.
class OutputSink final : public ResponseSink {
 public:
  void OnResponse(Response response) override {
    const std::lock_guard lock(mutex_);
    if (!response.status.ok()) status_ = response.status;
    for (Beam& beam : response.beams)
      outputs_.push_back({.ids = std::move(beam.output_ids),
                          .log_probs = std::move(beam.output_log_probs),
                          .reason = beam.finish_reason});
    if (response.beams.empty() && response.status.ok()) {
      const auto index = static_cast<size_t>(response.sequence_index);
      if (index >= outputs_.size()) outputs_.resize(index + 1);
      outputs_[index] = {.ids = std::move(response.output_ids),
                         .log_probs = std::move(response.output_log_probs),
                         .reason = response.finish_reason};
    }
    is_over_ = response.is_final;
    over_.notify_all();
  }

  Result<std::vector<Output>> Wait() {
    std::unique_lock lock(mutex_);
    over_.wait(lock, [this] { return is_over_; });
    if (!status_.ok()) return status_;
    return std::move(outputs_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  Status status_;
  std::vector<Output> outputs_;
  bool is_over_ = false;
};

// Where nothing is said of what follows, it need not be computed. Which beams are the best depends
// on it.
void ShortenToOutputs(const Receipt& receipt, Request& request) {
  if (request.sampling.beam_width > 1) return;
  size_t most = 1;
  for (const SequenceRecord& sequence : receipt.outputs) {
    if (!sequence.is_cut()) return;
    most = std::max(most, sequence.ids.size());
  }
  request.max_tokens = std::min(request.max_tokens, static_cast<int>(most));
}

std::string Compare(const Request& request, const SequenceRecord& recorded, const Output& now,
                    size_t index) {
  const std::string place = fmt::format("output {}", index);
  const size_t both = std::min(recorded.ids.size(), now.ids.size());
  for (size_t i = 0; i < both; ++i)
    if (recorded.ids[i] != now.ids[i])
      return fmt::format("{}: token {} at position {}, the model gives {}", place, recorded.ids[i],
                         i, now.ids[i]);
  if (recorded.is_cut() && request.sampling.beam_width > 1)
    return fmt::format("{}: end {}, which no beam has", place, recorded.end);
  const bool has_enough = recorded.is_cut() ? now.ids.size() >= recorded.ids.size()
                                            : now.ids.size() == recorded.ids.size();
  if (!has_enough)
    return fmt::format("{}: {} tokens, the model gives {}", place, recorded.ids.size(),
                       now.ids.size());
  if (!recorded.is_cut() && recorded.end != FinishReasonName(now.reason))
    return fmt::format("{}: end {}, the model's is {}", place, recorded.end,
                       FinishReasonName(now.reason));
  const auto log_probs =
      std::span(now.log_probs).first(std::min(now.log_probs.size(), recorded.ids.size()));
  const std::string hash = request.output.return_log_probs ? HashOfNumbers(log_probs) : "";
  return hash == recorded.log_probs ? "" : fmt::format("{}: log-probabilities are others", place);
}

Result<std::vector<Output>> Run(const Receipt& receipt, const Again& again) {
  Request request = receipt.request;
  ShortenToOutputs(receipt, request);
  request.sampling.disable_speculation = true;
  if (again.adapter != nullptr)
    request.lora = LoraUse{.id = 1, .is_own = true, .tensors = again.adapter};
  const auto sink = std::make_shared<OutputSink>();
  const auto id = again.executor->Enqueue(std::move(request), sink);
  if (!id.ok()) return id.status().WithPrefix("the model refuses the receipt's request");
  return sink->Wait();
}

// What can be told before anything is computed.
std::vector<std::string> CompareRecords(const Receipt& receipt, const EngineRecord& here) {
  std::vector<std::string> differences;
  for (const std::string& part : ChangedParts(receipt))
    differences.push_back(part == "digest" ? "digest: is not that of the receipt"
                                           : part + ": changed since the receipt was issued");
  const EngineRecord& recorded = receipt.engine;
  if (recorded.weights != here.weights)
    differences.push_back(
        fmt::format("weights: hash {}, the model's is {}", recorded.weights, here.weights));
  if (recorded.architecture != here.architecture)
    differences.push_back(fmt::format("architecture: {}, the model's is {}", recorded.architecture,
                                      here.architecture));
  if (recorded.quant_algo != here.quant_algo)
    differences.push_back(
        fmt::format("quant_algo: {}, the model's is {}", recorded.quant_algo, here.quant_algo));
  if (const auto& ids = receipt.request.input_ids;
      receipt.prompt != HashOfIds(ids) || receipt.num_prompt_tokens != std::ssize(ids))
    differences.push_back(fmt::format("prompt: {} tokens of hash {}, the given ones are {} of {}",
                                      receipt.num_prompt_tokens, receipt.prompt, ids.size(),
                                      HashOfIds(ids)));
  return differences;
}

}  // namespace

int64_t KvTokensOf(const Receipt& receipt) {
  constexpr int64_t kMost = int64_t{1} << 24;
  const Request& request = receipt.request;
  const int width = std::clamp(request.sampling.beam_width, 1, 1024);
  const int64_t block = std::clamp(receipt.engine.open.executor.block_size, 16, 128);
  const int64_t length = std::clamp<int64_t>(receipt.num_prompt_tokens, 1, kMost) +
                         std::clamp<int64_t>(request.max_tokens, 1, kMost);
  return width * (length + 4 * block) + 8 * block;
}

Result<std::vector<std::string>> Verify(const Receipt& receipt, const Again& again) {
  const Kernels& recorded = receipt.engine.kernels;
  if (recorded != again.engine.kernels && !again.any_kernels)
    return FailedPrecondition(
        fmt::format("kernels: the receipt is of {}, here are {}, which may round differently; run "
                    "it where those are, or try --any-kernels",
                    recorded.ToString(), again.engine.kernels.ToString()));
  if (!receipt.adapter.empty() && again.adapter == nullptr)
    return FailedPrecondition("adapter: the receipt is of one with hash " + receipt.adapter +
                              ", and none is given: name its folder by --adapter");
  std::vector<std::string> differences = CompareRecords(receipt, again.engine);
  const std::string adapter = again.adapter == nullptr ? "" : HashOfAdapter(*again.adapter);
  if (receipt.adapter != adapter)
    differences.push_back(fmt::format("adapter: hash {}, that of the given one is {}",
                                      receipt.adapter.empty() ? "none" : receipt.adapter, adapter));
  ASSIGN_OR_RETURN(const std::vector<Output> outputs, Run(receipt, again));
  if (outputs.size() != receipt.outputs.size())
    differences.push_back(fmt::format("outputs: {} of them, the model gives {}",
                                      receipt.outputs.size(), outputs.size()));
  for (size_t i = 0; i < std::min(outputs.size(), receipt.outputs.size()); ++i)
    if (std::string text = Compare(receipt.request, receipt.outputs[i], outputs[i], i);
        !text.empty())
      differences.push_back(std::move(text));
  return differences;
}

}  // namespace inflight::receipts
