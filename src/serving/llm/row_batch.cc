// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/row_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/memory_account.h"
#include "contract/rows.h"
#include "serving/configuration/model_config.h"
#include "serving/llm/llm_call.h"

namespace inflight::serving {
namespace {

// gRPC carries at most 2 GiB a message.
constexpr int64_t kMaxJoinedBytes = int64_t{1} << 30;

using CancelTokens = std::vector<std::shared_ptr<CancelToken>>;

void CancelAll(const CancelTokens& cancels) {
  for (const auto& cancel : cancels) cancel->Cancel();
}

// What a row has for itself of what its request says beside tensors.
size_t BytesOfRow(const Request& request) {
  size_t bytes = request.id.size() + BytesOfParameters(request.parameters);
  for (const std::string& output : request.requested_outputs) bytes += output.size();
  return bytes;
}

// The answers of all rows on their way to the client.
class RowBatch {
 public:
  RowBatch(const Model& model, Request request, ResponseHandler handler, int num_rows)
      : model_(model),
        request_(std::move(request)),
        handler_(std::move(handler)),
        counts_(std::make_shared<RowCounts>(num_rows)),
        cancels_(static_cast<size_t>(num_rows)),
        num_running_(num_rows),
        rows_(static_cast<size_t>(num_rows)) {
    for (auto& cancel : cancels_) cancel = std::make_shared<CancelToken>();
  }
  virtual ~RowBatch() = default;

  // `inputs` are those of the rows, `charge` is for what else each of them has.
  static void Run(const std::shared_ptr<RowBatch>& batch, Model& model,
                  std::vector<std::vector<Tensor>> inputs, MemoryCharge charge) {
    batch->charge_ = std::move(charge);
    batch->request_.cancel->SetListener([cancels = batch->cancels_] { CancelAll(cancels); });
    for (size_t i = 0; i < inputs.size(); ++i) {
      model.Infer(batch->RowRequest(i, std::move(inputs[i])),
                  [batch, i](Response response) { batch->OnResponse(i, std::move(response)); });
    }
    const std::lock_guard lock(batch->mutex_);
    batch->OnAllStarted();
  }

 protected:
  struct Row {
    Status status;
    bool has_response = false;
    Response response;
  };

  // Both under the lock.
  virtual void OnRow(Row& row, Response response, bool is_last) = 0;
  virtual void OnAllStarted() {}

  void CancelRows() { CancelAll(cancels_); }

  const Model& model_;
  const Request request_;
  const ResponseHandler handler_;
  const std::shared_ptr<RowCounts> counts_;
  CancelTokens cancels_;  // [num_rows]
  int num_running_;
  std::vector<Row> rows_;

 private:
  Request RowRequest(size_t i, std::vector<Tensor> inputs) const {
    Request row = request_;
    row.inputs = std::move(inputs);
    row.row = BatchRow{.index = static_cast<int>(i), .counts = counts_};
    row.cancel = cancels_[i];
    if (i > 0) row.trace = {};  // the first row's times stand for all
    return row;
  }

  void OnResponse(size_t i, Response response) {
    std::lock_guard lock(mutex_);
    const bool is_last = response.is_final && --num_running_ == 0;
    if (is_last) counts_->Flush();
    OnRow(rows_[i], std::move(response), is_last);
  }

  MemoryCharge charge_;
  std::mutex mutex_;
};

// Each row by itself.
class SeparateRows final : public RowBatch {
 public:
  using RowBatch::RowBatch;

 private:
  void OnRow(Row&, Response response, bool is_last) override {
    const bool is_mark = response.is_final && response.status.ok() && response.outputs.empty();
    if (is_mark && !is_last) return;
    response.is_final = is_last;
    handler_(std::move(response));
  }
};

// All rows in one response. Where a row fails, so does the request: once all rows have started, so
// that each had its chance to be refused, the others are cancelled.
class JoinedRows final : public RowBatch {
 public:
  using RowBatch::RowBatch;

 private:
  void OnRow(Row& row, Response response, bool is_last) override {
    const bool is_mark = response.is_final && row.has_response && response.outputs.empty();
    if (!response.status.ok()) {
      Fail(row, response.status);
    } else if (row.has_response && !is_mark) {
      Fail(row, NotASingleResponse());
    } else if (const int64_t bytes = JoinedBytes(response); bytes > kMaxJoinedBytes) {
      Fail(row, InvalidArgument(fmt::format(
                    "the outputs of {} rows are {} bytes, a response holds at most {} (send fewer "
                    "rows per request)",
                    rows_.size(), bytes, kMaxJoinedBytes)));
    } else if (!is_mark) {
      row.has_response = true;
      row.response = std::move(response);
    }
    if (is_last) Finish();
  }

  void OnAllStarted() override {
    have_all_started_ = true;
    if (has_failed_) CancelRows();
  }

  void Fail(Row& row, const Status& status) {
    if (row.status.ok()) row.status = status;
    if (std::exchange(has_failed_, true)) return;
    if (have_all_started_) CancelRows();
  }

  // At least: rows are padded to the longest.
  int64_t JoinedBytes(const Response& row) const {
    int64_t bytes = 0;
    for (const Tensor& output : row.outputs) bytes += std::ssize(output.data);
    return bytes * std::ssize(rows_);
  }

  Status NotASingleResponse() const {
    if (!model_.decoupled() || request_.wants_one_response) {
      return Unimplemented(
          "this call carries one response, and a row has several (send the request on a stream, or "
          "ask neither to stream nor for several sequences)");
    }
    return Unimplemented(
        "the rows of a stream cannot be told apart, since the model's configuration declares no "
        "output batch_index (declare it, or send one row per request)");
  }

  void Finish() {
    if (Status status = Failure(); !status.ok()) {
      return handler_(FinalResponse(model_, request_, std::move(status)));
    }
    std::vector<std::vector<Tensor>> outputs;
    bool is_cut_short = false;
    for (Row& row : rows_) {
      outputs.push_back(std::move(row.response.outputs));
      is_cut_short |= row.response.is_cut_short;
    }
    std::string receipts = Receipts();
    Response out = std::move(rows_.front().response);
    if (!receipts.empty()) out.parameters[std::string(kReceiptParameter)] = std::move(receipts);
    out.is_cut_short = is_cut_short;
    out.outputs = contract::JoinRows(outputs);
    out.is_final = true;
    handler_(std::move(out));
  }

  // Those of the rows as a list in JSON; empty: they have none.
  std::string Receipts() const {
    std::string list;
    for (const Row& row : rows_)
      if (const std::string* receipt = ReceiptOf(row.response); receipt != nullptr)
        list.append(list.empty() ? "[" : ",").append(*receipt);
    return list.empty() ? list : list + "]";
  }

  // All failed rows, in their order; those that were cancelled only where nothing else failed.
  Status Failure() const {
    const auto failed = [](const Row& row) {
      return !row.status.ok() && row.status.code() != StatusCode::kCancelled;
    };
    const auto first = std::find_if(rows_.begin(), rows_.end(), failed);
    if (first == rows_.end()) {
      const bool is_cancelled =
          std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return !row.status.ok(); });
      return is_cancelled ? Cancelled("request was cancelled") : Status::Ok();
    }
    std::string message;
    for (const Row& row : rows_) {
      if (!failed(row)) continue;
      if (!message.empty()) message += "; ";
      message += row.status.message();
    }
    return first->status.WithMessage(std::move(message));
  }

  bool have_all_started_ = false;
  bool has_failed_ = false;
};

}  // namespace

int NumRows(const Model& model, const Request& request) {
  if (model.config().max_batch_size() == 0 || request.inputs.empty()) return 1;
  const auto& shape = request.inputs.front().shape;
  return shape.empty() ? 1 : static_cast<int>(shape.front());
}

void InferRows(Model& model, Request request, ResponseHandler handler) {
  const int num_rows = NumRows(model, request);
  auto inputs = contract::SplitRows(request.inputs, num_rows);
  if (!inputs.ok()) return handler(FinalResponse(model, request, inputs.status()));
  MemoryCharge charge(request.memory);
  const Status room = charge.Resize(static_cast<size_t>(num_rows) * BytesOfRow(request));
  if (!room.ok()) return handler(FinalResponse(model, request, room));
  request.inputs.clear();
  const bool is_joined =
      !model.decoupled() || request.wants_one_response || !HasOutput(model.config(), "batch_index");
  std::shared_ptr<RowBatch> batch;
  if (is_joined) {
    batch = std::make_shared<JoinedRows>(model, std::move(request), std::move(handler), num_rows);
  } else {
    batch = std::make_shared<SeparateRows>(model, std::move(request), std::move(handler), num_rows);
  }
  RowBatch::Run(batch, model, *std::move(inputs), std::move(charge));
}

RowCounts::Record& RowCounts::Add(ModelStatistics& statistics, const RequestSpan& span) {
  const auto [found, is_new] = records_.try_emplace(&statistics);
  Record& record = found->second;
  const int64_t received_ns =
      is_new ? span.received_ns : std::min(record.span.received_ns, span.received_ns);
  if (is_new || span.finished_ns >= record.span.finished_ns) record.span = span;
  record.span.received_ns = received_ns;
  return record;
}

void RowCounts::Succeeded(ModelStatistics& statistics, const RequestSpan& span) {
  std::lock_guard lock(mutex_);
  Add(statistics, span);
}

void RowCounts::Failed(ModelStatistics& statistics, FailureReason reason, const RequestSpan& span,
                       bool is_cancelled) {
  std::lock_guard lock(mutex_);
  Record& record = Add(statistics, span);
  if (!record.failure) record.failure = {.reason = reason, .is_cancelled = is_cancelled};
}

void RowCounts::Flush() {
  std::lock_guard lock(mutex_);
  for (const auto& [statistics, record] : records_) {
    const RequestSpan& span = record.span;
    if (!record.failure) {
      statistics->RequestSucceeded(span, static_cast<uint64_t>(num_rows_));
    } else if (record.failure->is_cancelled) {
      statistics->RequestCancelled(span.received_ns, span.finished_ns, record.failure->reason);
    } else {
      statistics->RequestFailed(record.failure->reason, span.received_ns, span.finished_ns);
    }
  }
}

void CountSuccess(const Request& request, ModelStatistics& statistics, const RequestSpan& span) {
  if (request.row) return request.row->counts->Succeeded(statistics, span);
  statistics.RequestSucceeded(span);
}

void CountFailure(const Request& request, ModelStatistics& statistics, FailureReason reason,
                  int64_t received_ns, int64_t finished_ns, bool is_cancelled) {
  if (request.row) {
    return request.row->counts->Failed(
        statistics, reason, {.received_ns = received_ns, .finished_ns = finished_ns}, is_cancelled);
  }
  if (is_cancelled) return statistics.RequestCancelled(received_ns, finished_ns, reason);
  statistics.RequestFailed(reason, received_ns, finished_ns);
}

}  // namespace inflight::serving
