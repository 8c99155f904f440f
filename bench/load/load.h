// SPDX-License-Identifier: Apache-2.0
// Load on a running server over its own protocols, and what the client saw.
//
// One thread does everything, by epoll (HTTP) or one completion queue (gRPC), so that the client
// takes little of the machine it measures; what it takes is in the result. Requests are built
// before the clock starts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inflight/status.h"

namespace inflight::bench {

enum class LoadProtocol { kInfer, kGenerate, kGenerateStream, kGrpcStream };

struct LoadPrompt {
  std::string text;          // of text models
  std::vector<int32_t> ids;  // of models that take token ids; empty: a text model
  int output_len = 0;        // tokens asked for
};

struct LoadOptions {
  LoadProtocol protocol = LoadProtocol::kGenerateStream;
  std::string host;
  int port = 0;
  std::string model;
  bool ignore_end = true;   // end_id -1: answers have output_len tokens
  int concurrency = 1;      // requests under way; with request_rate: at most so many
  double request_rate = 0;  // per second, gaps exponential; 0: as fast as answers come
  int num_warmup = 0;       // requests before the measurement, not counted
  int64_t timeout_ms = 600000;
  uint64_t seed = 1;
};

// Where a request stands in a sequence of requests; without an id in none.
struct SequenceStep {
  uint64_t id = 0;
  bool is_start = false;
  bool is_end = false;
};

// What became of one request. Times are of the steady clock.
struct RequestOutcome {
  SequenceStep sequence;  // set before its start
  int64_t due_ns = 0;     // when it was to be sent
  int64_t sent_ns = 0;
  int64_t written_ns = 0;  // the whole request was given away; 0 where the transport cannot tell
  int64_t answer_ns = 0;   // the answer's first bytes, or its message before it is parsed
  int64_t first_ns = 0;    // first tokens; 0 where the protocol does not stream
  int64_t end_ns = 0;
  int num_tokens = 0;            // of the answer; 0 where it cannot be told
  int num_chunks = 0;            // responses with tokens
  std::vector<int64_t> gaps_ns;  // between chunks
  std::string error;             // empty: answered
};

struct LoadResult {
  std::vector<RequestOutcome> outcomes;
  double wall_s = 0;  // first request sent to last answer
  double cpu_s = 0;   // of this process meanwhile, user and system
};

// Sends each prompt once, those of the warm-up (taken from the front) before the clock starts.
// An error where the server cannot be reached at all; errors of single requests are outcomes.
Result<LoadResult> RunLoad(const LoadOptions& options, const std::vector<LoadPrompt>& prompts);

// How requests get to the server; one implementation per wire.
class LoadTransport {
 public:
  virtual ~LoadTransport() = default;
  // Begins request `index`; `outcome` stays valid until it has an end or an error.
  virtual void Start(size_t index, RequestOutcome& outcome) = 0;
  // Handles what arrives until `until_ns` or, earlier, until a request ended. Returns the number
  // of requests that ended.
  virtual int Poll(int64_t until_ns) = 0;
};

int64_t LoadNowNs();
std::unique_ptr<LoadTransport> CreateHttpTransport(const LoadOptions& options,
                                                   const std::vector<LoadPrompt>& prompts);
// Of whole requests, taken round and round; of answers, only that they are right is told.
std::unique_ptr<LoadTransport> CreateHttpTransport(const LoadOptions& options,
                                                   std::vector<std::string> requests);
// The same of requests that are made when they are sent, since each names its place in a sequence.
using MakeRequestBytes = std::function<std::string(size_t index, const SequenceStep& step)>;
std::unique_ptr<LoadTransport> CreateHttpTransport(const LoadOptions& options,
                                                   MakeRequestBytes make);
// kUnimplemented in a build without gRPC.
Result<std::unique_ptr<LoadTransport>> CreateGrpcTransport(const LoadOptions& options,
                                                           const std::vector<LoadPrompt>& prompts);

// A table to read, and the same as one JSON object.
std::string LoadReportText(const LoadOptions& options, const LoadResult& result);
std::string LoadReportJson(const LoadOptions& options, const LoadResult& result);

}  // namespace inflight::bench
