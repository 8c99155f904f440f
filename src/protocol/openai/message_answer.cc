// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/message_answer.h"

#include <iterator>
#include <optional>
#include <utility>

#include "protocol/openai/message_parts.h"

namespace inflight::openai {
namespace {

using answer_parts::Part;

// Responses of its one request come one after the other.
class MessageAnswer final : public AnswerSink {
 public:
  MessageAnswer(Started started, const MakeWriter& make_writer)
      : writer_(make_writer(started)), started_(std::move(started)), charge_(started_.memory) {}

  void OnResponse(size_t /*prompt*/, const serving::Response& response) override {
    if (is_done_) return;
    if (!response.status.ok()) {
      is_done_ = true;
      return writer_->Fail(response.status);
    }
    if (response.generated != nullptr) Take(*response.generated);
    if (is_done_ || !response.is_final) return;
    const std::string* receipt = serving::ReceiptOf(response);
    End(receipt == nullptr ? std::string() : *receipt);
  }

 private:
  void Take(const serving::Generated& generated) {
    if (!parts_) {
      parts_.emplace(started_.format, *started_.begins_in);
      usage_.prompt_tokens = generated.num_prompt_tokens;
      usage_.cached_tokens = generated.response.num_cached_tokens;
      writer_->Begin(usage_);
    }
    usage_.completion_tokens += std::ssize(generated.response.output_ids);
    if (!generated.stop_text.empty()) stop_text_ = generated.stop_text;
    writer_->Read(generated.response);
    const answer_parts::Parts parts = parts_->Read(generated);
    for (const Part& part : parts.items()) Write(part);
    writer_->Step();
    Charge();
  }

  void Charge() {
    const size_t bytes = writer_->held_bytes();
    if (bytes <= kUncountedBytes) return;
    const Status room = charge_.Reserve(bytes);
    if (room.ok()) return;
    is_done_ = true;
    for (const auto& cancel : started_.cancels) cancel->Cancel();
    writer_->Fail(room);
  }

  void Write(const Part& part) {
    const bool is_call = part.kind == Part::Kind::kCall;
    const Part::Kind kind = part.kind == Part::Kind::kArguments ? Part::Kind::kCall : part.kind;
    if (is_call || open_ != kind) {
      Close(/*is_cut=*/false);
      open_ = kind;
      writer_->Open(kind, is_call ? part.text : "");
    }
    if (!is_call) writer_->Append(part.text);
  }

  void Close(bool is_cut) {
    if (open_) writer_->Close(is_cut);
    open_.reset();
  }

  void End(std::string receipt) {
    is_done_ = true;
    if (!parts_) return writer_->Fail(Internal("the model gave no answer"));
    Close(parts_->finish_reason() == "length");
    writer_->End({.reason = parts_->finish_reason(),
                  .stop_text = stop_text_,
                  .usage = usage_,
                  .receipt = std::move(receipt)});
  }

  const std::unique_ptr<MessageWriter> writer_;
  const Started started_;
  std::optional<MessageParts> parts_;  // from the first response on
  std::optional<Part::Kind> open_;     // of the block
  MessageUsage usage_;
  std::string stop_text_;
  MemoryCharge charge_;  // for what the writer holds
  bool is_done_ = false;
};

}  // namespace

MakeSink AnswerByMessage(MakeWriter make_writer) {
  return [make_writer = std::move(make_writer)](Started started) -> std::shared_ptr<AnswerSink> {
    return std::make_shared<MessageAnswer>(std::move(started), make_writer);
  };
}

}  // namespace inflight::openai
