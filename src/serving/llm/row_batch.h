// SPDX-License-Identifier: Apache-2.0
// A request of several rows (inputs [B, ...], B > 1): each row runs as a request of its own, with
// its share of every input. Cancelling the request, or stopping its id, reaches all rows.
//
// Answers: a decoupled model answers each row by itself, told apart by `batch_index`; the last
// answer of the last row is the final one. All rows come in one response, one below the other,
// where the model is not decoupled, where the call carries a single response, and where the model
// declares no `batch_index`. An error names its row.
//
// Threads: rows answer from several threads; the handler is called by one at a time.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "serving/core/model.h"

namespace inflight::serving {

// Rows of a request; 1 for a model without batches.
int NumRows(const Model& model, const Request& request);

// Splits the request and gives each row to the model.
void InferRows(Model& model, Request request, ResponseHandler handler);

// What the rows of one request count together: a single record for each model, when all have ended.
class RowCounts {
 public:
  explicit RowCounts(int num_rows) : num_rows_(num_rows) {}

  void Succeeded(ModelStatistics& statistics, const RequestSpan& span);
  void Failed(ModelStatistics& statistics, FailureReason reason, const RequestSpan& span,
              bool is_cancelled);
  void Flush();

 private:
  struct Failure {
    FailureReason reason;
    bool is_cancelled;
  };
  struct Record {
    RequestSpan span;                // of the row that ended last, from when the first was received
    std::optional<Failure> failure;  // the first one
  };
  Record& Add(ModelStatistics& statistics, const RequestSpan& span);

  const int num_rows_;
  std::mutex mutex_;
  std::map<ModelStatistics*, Record> records_;
};

// A request's outcome in a model's statistics: at once, or with the other rows of its batch.
void CountSuccess(const Request& request, ModelStatistics& statistics, const RequestSpan& span);
void CountFailure(const Request& request, ModelStatistics& statistics, FailureReason reason,
                  int64_t received_ns, int64_t finished_ns, bool is_cancelled);

}  // namespace inflight::serving
