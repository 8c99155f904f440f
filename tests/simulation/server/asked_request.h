// SPDX-License-Identifier: Apache-2.0
// A request as a simulated client sends it, and what the answer has to be: what the fake device
// yields for it alone.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "grpc_service.pb.h"
#include "inflight/request.h"
#include "inflight/tokenizer.h"
#include "simulation/server/http_client.h"

namespace inflight::testing {

using Random = std::mt19937_64;
int Below(Random& random, int n);
inline bool Chance(Random& random, int one_in) { return Below(random, one_in) == 0; }

struct AskedRequest {
  enum class Kind : uint8_t {
    kIds,           // of the LLM, by ids
    kStreamOfIds,   // the same, token by token
    kText,          // of the ensemble
    kStreamOfText,  // the same, piece by piece
    kTooLong,       // a text that no prompt is as long as
    kNoModel,
    kNoRequest,  // bytes that are none
    kLoad,
    kUnload,
  };

  Kind kind = Kind::kIds;
  uint64_t seed = 0;  // its own, by which the device tells it from others
  std::vector<TokenId> ids;
  std::string text;
  TokenId end_id = 0;  // that ends the ids; a text ends with the tokenizer's
  int max_tokens = 1;
  int timeout_us = 0;            // 0: none; else it may be refused
  size_t num_padding_bytes = 0;  // that mean nothing

  bool is_stream() const { return kind == Kind::kStreamOfIds || kind == Kind::kStreamOfText; }
  bool is_control() const { return kind == Kind::kLoad || kind == Kind::kUnload; }
};

AskedRequest RandomRequest(Random& random, uint64_t seed);

std::string HttpBytes(const AskedRequest& asked);
// Of the kinds that the LLM itself answers.
::inference::ModelInferRequest GrpcMessage(const AskedRequest& asked);

enum class Judgement : uint8_t {
  kRight,    // what it is alone
  kRefused,  // an error that a client may be told
  kWrong,
};

// Says what a client was told.
class Judge {
 public:
  explicit Judge(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  Judgement OfHttp(const AskedRequest& asked, bench::HttpAnswer& answer) const;
  // `ids`: of all responses together.
  Judgement OfIds(const AskedRequest& asked, const std::vector<TokenId>& ids) const;

 private:
  Judgement OfText(const AskedRequest& asked, const std::string& text) const;
  Judgement OfStream(const AskedRequest& asked, const std::string& body) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace inflight::testing
