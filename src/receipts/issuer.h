// SPDX-License-Identifier: Apache-2.0
// Makes the receipts of one model's answers (receipt.h).
//
// Threads: Begin from any; a draft is of one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "inflight/executor.h"
#include "inflight/request.h"
#include "receipts/receipt.h"

namespace inflight::receipts {

struct IssueOptions {
  bool issues = false;
  bool has_prompts = true;  // else a hash stands for the prompt's ids
};

// The receipt of an answer that is under way.
class Draft {
 public:
  // `num_sequences`: those that are not beams.
  Draft(Receipt receipt, bool has_beams, size_t num_sequences)
      : receipt_(std::move(receipt)), has_beams_(has_beams), sequences_(num_sequences) {}
  // Of an answer that no receipt covers, for what it names.
  explicit Draft(std::string not_covered) : not_covered_(std::move(not_covered)) {}

  // `is_read`: the client gets these tokens. Those behind a stop text it does not get.
  void Add(const Response& response, bool is_read);
  // After the final response. `has_stopped`: the sequence of that index ended before a stop text.
  std::string Finish(const std::function<bool(int sequence)>& has_stopped) const;

 private:
  struct Sequence {
    std::vector<TokenId> ids;
    std::vector<float> log_probs;
    FinishReason reason = FinishReason::kNotFinished;  // that: its end was not told
    bool has_more = false;                             // that nobody read
  };
  SequenceRecord RecordOf(const Sequence& sequence, bool has_stopped) const;

  Receipt receipt_;
  bool has_beams_ = false;
  std::string not_covered_;
  std::vector<Sequence> sequences_;
};

class Issuer {
 public:
  Issuer(EngineRecord engine, const IssueOptions& options)
      : engine_(std::move(engine)), options_(options) {}

  // Reads the adapter of a request that is the first to name it, for Begin and for the executor:
  // what is hashed is what is computed with, also where its files are replaced meanwhile. One that
  // cannot be read is the executor's to tell.
  void BringAdapter(Request& request);
  // Of a request as it goes to the executor, whose limits these are.
  Draft Begin(const Request& request, const ExecutorLimits& limits);

 private:
  // Of an adapter whose id the program gave; read once.
  Result<std::string> AdapterHash(const LoraUse& use);

  const EngineRecord engine_;
  const IssueOptions options_;
  std::mutex mutex_;  // of what is below
  std::map<uint64_t, std::string> adapters_;
};

}  // namespace inflight::receipts
