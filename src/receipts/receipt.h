// SPDX-License-Identifier: Apache-2.0
// The receipt of an answer: what was asked, what computed it, and what came of it
// (docs/receipts.md). It is one JSON object on one line, written in one way only, so that equal
// receipts are equal texts; programs may write it anew in other order and spacing.
//
// A receipt is no signature: whoever makes one up can make its hashes fit. It is a statement that
// others can compute again (verify.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inflight/request.h"
#include "receipts/engine.h"

namespace inflight::receipts {

inline constexpr int kFormat = 1;  // the value of kFormatMember
inline constexpr std::string_view kFormatMember = "inflight_receipt";
inline constexpr std::string_view kReceipt = "receipt";  // that answers carry it as

// The output of one sequence, or of one beam.
struct SequenceRecord {
  std::vector<TokenId> ids;  // without the end id
  // Why it ended: FinishReasonName, or kStopText. Of kStopText and "cancelled" more tokens would
  // have come, and `ids` are the first ones.
  std::string end;
  std::string log_probs;  // HashOfNumbers of output_log_probs; empty: not asked for

  bool is_cut() const;
  bool operator==(const SequenceRecord&) const = default;
};
inline constexpr std::string_view kStopText = "stop_text";

// Of each part of a receipt, the first 16 digits of the hash of its canonical text.
struct PartHashes {
  std::string model, kernels, prompt, parameters, outputs;
};

struct Receipt {
  EngineRecord engine;
  std::string prompt;  // HashOfIds
  int64_t num_prompt_tokens = 0;
  bool has_ids = true;                  // else those of the prompt are left out
  std::string adapter;                  // HashOfAdapter; empty: none
  Request request;                      // as of request_members.h, with the prompt
  std::vector<SequenceRecord> outputs;  // by index; of beams the best first
  // As read; written anew by ReceiptText.
  PartHashes parts = {};
  std::string digest = {};  // of the whole but itself
};

// The object, with all hashes.
std::string ReceiptText(const Receipt& receipt);
// kDataLoss names the member that is wrong, missing or not known; kUnimplemented another format;
// kFailedPrecondition an answer that has none, with the reason.
Result<Receipt> ParseReceipt(std::string_view text);

// The parts that do not have the hash that is written for them: "outputs"; "digest" where only the
// whole has not. Empty: nobody changed the receipt who did not make its hashes fit.
std::vector<std::string> ChangedParts(const Receipt& receipt);

// In place of a receipt, of an answer that cannot have one: {"inflight_receipt":1,"not_covered":
// "guide"}.
std::string NoReceiptText(std::string_view not_covered);

// The texts of the receipts in a file: of one or a list, by themselves or in an answer that carries
// them as `receipt`, also among `parameters`, in the event that ends a stream, also of its
// `response`, or in a whole stream of events. kNotFound where there is none.
Result<std::vector<std::string>> FindReceipts(std::string_view json);

}  // namespace inflight::receipts
