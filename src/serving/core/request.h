// SPDX-License-Identifier: Apache-2.0
// One inference request and its responses between a protocol and a model: what every front end
// parses to.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <variant>
#include <vector>

#include "base/client.h"
#include "base/memory_account.h"
#include "base/request_tally.h"
#include "serving/core/output_rule.h"
#include "serving/memory/shared_memory.h"
#include "serving/tensors/tensor.h"
#include "serving/trace/trace.h"

namespace inflight::serving {

using ParameterValue = std::variant<bool, int64_t, uint64_t, double, std::string>;
using Parameters = std::map<std::string, ParameterValue, std::less<>>;

// How a client's disconnect or cancel reaches whatever works for it. Cancel may come from any
// thread, before or after a listener is set.
class CancelToken {
 public:
  void Cancel();  // idempotent
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // Runs `listener` once when cancelled: at once if that was already. Replaces the previous
  // listener; null removes it, and after that call returns no listener runs any more.
  void SetListener(std::function<void()> listener);

 private:
  void RunListener(std::function<void()> listener);  // running_in_ is this thread

  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable idle_;
  std::function<void()> listener_;
  std::thread::id running_in_;  // the thread in a listener; default = none
};

// How a front end with a queue tells whoever makes tokens for it that its client does not read: no
// more of them for now. From any thread; `change` counts what the front end decides, and what comes
// late means nothing.
class HoldToken {
 public:
  void Set(bool is_held, uint64_t change);
  // Called at once where it is held, and at each change; under a lock, so it must not block or call
  // the token. Several may listen.
  void AddListener(std::function<void(bool is_held)> listener);

 private:
  std::mutex mutex_;
  bool is_held_ = false;
  uint64_t newest_ = 0;  // change
  std::vector<std::function<void(bool)>> listeners_;
};

// Whose sequence it is, its number and its name; one of the two is set.
using SequenceKey = std::tuple<Identity, uint64_t, std::string>;

class RowCounts;
struct FoundAdapter;  // generation.h
struct Generated;     // the same
struct Generation;    // the same

// One row of a batched request, which runs as a request of its own.
struct BatchRow {
  int index = 0;
  std::shared_ptr<RowCounts> counts;  // of all rows; never null
};

struct Request {
  std::string model_name;
  std::string model_version;  // empty = the version policy's choice
  std::string id;             // echoed
  std::vector<Tensor> inputs;
  std::shared_ptr<Generation> generation;  // what is asked in place of tensors; null: by tensors
  std::vector<std::string> requested_outputs;  // empty = all
  OutputRules output_rules;  // of outputs that go out otherwise than the model made them
  Parameters parameters;     // custom ones; the reserved ones are the fields below
  // That kLoraName of the parameters names (generation.h); null: nobody has looked for it yet.
  std::shared_ptr<const FoundAdapter> adapter;
  uint64_t priority = 0;
  uint64_t timeout_us = 0;  // 0 = none
  // The sequence that the request belongs to, as a number or as text; 0 and "" are none.
  uint64_t sequence_id = 0;
  std::string sequence_name;
  bool sequence_start = false;
  bool sequence_end = false;
  bool is_of_stream = false;        // that was let in before: it counts for its client's rate
  bool wants_one_response = false;  // the call carries exactly one
  bool wants_text = false;  // text_output also of a model (Model::text) that answers with ids alone
  bool is_step = false;     // of an ensemble, not of a client
  bool is_warm_up = false;  // before its instance is ready: no batch waits for more
  std::optional<BatchRow> row;  // none = the request is a whole
  std::shared_ptr<CancelToken> cancel = std::make_shared<CancelToken>();  // never null
  std::shared_ptr<HoldToken> hold;                                        // null: nobody holds it
  std::shared_ptr<const Client> client;  // null: nobody who is told from others
  std::shared_ptr<RequestTally> tally;   // of the request log; null where that is off
  // Of the connection that it came on: what is made of it is charged to it. Null: counts for
  // nobody.
  std::shared_ptr<AccountShare> memory;
  std::shared_ptr<const MemoryCharge> charge;  // of what inputs take beside the request's body
  int64_t received_ns = 0;                     // monotonic clock
  Trace trace;                                 // empty = not traced
  std::vector<RegionUse> regions;              // of inputs and outputs, held until the last answer

  Identity identity() const { return IdentityOf(client); }
  SequenceKey sequence_key() const { return {identity(), sequence_id, sequence_name}; }
  const Tensor* FindInput(std::string_view name) const;
  bool WantsOutput(std::string_view name) const;
  int64_t batch_size(int max_batch_size) const;  // 1 for models that do not batch
};

// The sequence by a text. kUnimplemented for one that is too long.
Status SetSequenceName(std::string name, Request& request);

struct Response {
  std::string model_name;
  std::string model_version;
  std::string id;
  Status status;                // an error has no outputs
  std::vector<Tensor> outputs;  // may be empty on a final response of a decoupled model
  std::shared_ptr<const Generated> generated;  // of a request by generation, in place of outputs
  Parameters parameters;
  bool is_final = false;
  // A stop, or the server's end, came before the answer was whole: it is nobody else's.
  bool is_cut_short = false;
  bool rejected = false;  // an error found before the model ran (validation, unknown model, full
                          // queue): a stream answers it without the marks of an executed request
  // An answer although it has no outputs (the acknowledgement of a stop): protocols deliver it,
  // while a final response without outputs otherwise only ends a decoupled request.
  bool has_answer = false;
};

// The parameter of a response that is the answer's receipt (docs/receipts.md).
inline constexpr std::string_view kReceiptParameter = "receipt";
// Its text, in JSON; null where there is none. What is no text is none: a model may give back the
// parameters of its request, whatever the client said.
const std::string* ReceiptOf(const Response& response);

// About what they take in memory.
size_t BytesOfParameters(const Parameters& parameters);

// Called for each response, in order, never concurrently for one request; the last has is_final.
// From any thread, possibly before Infer returned. Must not block for long.
using ResponseHandler = std::function<void(Response)>;

}  // namespace inflight::serving
