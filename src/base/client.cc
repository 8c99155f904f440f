// SPDX-License-Identifier: Apache-2.0
#include "base/client.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/status_macros.h"

namespace inflight {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

std::string Number(double value) {  // 20, 0.001
  std::array<char, 32> text;
  const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
  return {text.begin(), end};
}

// "key 'a' `what`".
Status OverLimit(const std::string& name, const std::string& what) {
  return ResourceExhausted("key '" + name + "' " + what).WithReason(Reason::kOverLimit);
}

RequestBucket BucketOf(const ClientLimits& limits, int64_t now_ns) {
  return limits.requests_per_second > 0
             ? RequestBucket(limits.requests_per_second, limits.burst, now_ns)
             : RequestBucket();
}

}  // namespace

ClientUse::ClientUse(const ClientLimits& limits, int64_t now_ns)
    : limits_(limits), requests_(BucketOf(limits, now_ns)), period_started_ns_(now_ns) {}

void ClientUse::Change(const ClientLimits& limits, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (limits_.period_s > 0) RollLocked(now_ns);
  limits_ = limits;
  RequestBucket requests = BucketOf(limits, now_ns);
  requests.ContinueFrom(requests_, now_ns);
  requests_ = requests;
}

void ClientUse::SetMayInfer(bool may_infer) {
  const std::lock_guard lock(mutex_);
  may_infer_ = may_infer;
}

Status ClientUse::CheckMayInfer(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (may_infer_) return Status::Ok();
  return {StatusCode::kUnauthenticated,
          "key '" + name + "' may no longer infer: it, or its role 'inference', was taken away"};
}

Status ClientUse::TakeRequest(const std::string& name, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (requests_.Take(now_ns)) return Status::Ok();
  const int64_t wait_s = requests_.WaitSeconds();
  return OverLimit(name, "has sent more than its requests_per_second of " +
                             Number(requests_.per_second()) + " with a burst of " +
                             Number(requests_.burst()) + " allow; try again in " +
                             std::to_string(wait_s) + " s")
      .WithRetryAfter(wait_s);
}

Status ClientUse::Enter(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (limits_.max_concurrent > 0 && num_in_progress_ >= limits_.max_concurrent) {
    return OverLimit(name, "has " + std::to_string(num_in_progress_) +
                               " requests in progress, of at most max_concurrent = " +
                               std::to_string(limits_.max_concurrent) +
                               "; try again when one of them has ended");
  }
  ++num_in_progress_;
  return Status::Ok();
}

void ClientUse::Leave() {
  const std::lock_guard lock(mutex_);
  --num_in_progress_;
}

void ClientUse::RollLocked(int64_t now_ns) {
  const int64_t period_ns = limits_.period_s * kNsPerSecond;
  const int64_t num_past = (now_ns - period_started_ns_) / period_ns;
  if (num_past <= 0) return;
  period_ += num_past;
  period_started_ns_ += num_past * period_ns;
  tokens_taken_ = 0;
}

Result<int64_t> ClientUse::TakeTokens(const std::string& name, int64_t num_tokens, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (limits_.tokens_per_period == 0) return int64_t{-1};  // of no period
  RollLocked(now_ns);
  const int64_t left = std::max<int64_t>(0, limits_.tokens_per_period - tokens_taken_);
  if (num_tokens > left) {
    const int64_t end_ns = period_started_ns_ + limits_.period_s * kNsPerSecond;
    const int64_t wait_s = (end_ns - now_ns) / kNsPerSecond + 1;
    const bool may_ever = num_tokens <= limits_.tokens_per_period;
    return OverLimit(name, "has " + std::to_string(left) + " tokens left of tokens_per_period = " +
                               std::to_string(limits_.tokens_per_period) +
                               ", the request may take " + std::to_string(num_tokens) +
                               " (prompt and max_tokens); ask for fewer" +
                               (may_ever ? ", or try again in " + std::to_string(wait_s) + " s"
                                         : std::string()))
        .WithRetryAfter(may_ever ? wait_s : 0);
  }
  tokens_taken_ += num_tokens;
  return period_;
}

void ClientUse::ReturnTokens(int64_t period, int64_t num_tokens) {
  const std::lock_guard lock(mutex_);
  if (period == period_) tokens_taken_ -= num_tokens;
}

Status TakeRequestOfStream(const std::shared_ptr<const Client>& client, int64_t now_ns) {
  if (client == nullptr || client->use == nullptr) return Status::Ok();
  RETURN_IF_ERROR(client->use->CheckMayInfer(client->name));
  return client->use->TakeRequest(client->name, now_ns);
}

Result<ClientPlace> ClientPlace::Take(const std::shared_ptr<const Client>& client) {
  ClientPlace place;
  if (client == nullptr || client->use == nullptr) return place;
  RETURN_IF_ERROR(client->use->Enter(client->name));
  place.use_ = client->use;
  return place;
}

ClientPlace& ClientPlace::operator=(ClientPlace&& other) noexcept {
  Release();
  use_ = std::move(other.use_);
  return *this;
}

void ClientPlace::Release() {
  if (const auto use = std::exchange(use_, nullptr)) use->Leave();
}

Result<ClientTokens> ClientTokens::Take(const std::shared_ptr<const Client>& client,
                                        int64_t num_tokens, int64_t now_ns) {
  ClientTokens tokens;
  if (client == nullptr || client->use == nullptr) return tokens;
  ASSIGN_OR_RETURN(tokens.period_, client->use->TakeTokens(client->name, num_tokens, now_ns));
  tokens.use_ = client->use;
  tokens.num_tokens_ = num_tokens;
  return tokens;
}

ClientTokens& ClientTokens::operator=(ClientTokens&& other) noexcept {
  Settle(0);
  use_ = std::move(other.use_);
  num_tokens_ = other.num_tokens_;
  period_ = other.period_;
  return *this;
}

void ClientTokens::Settle(int64_t num_taken) {
  if (const auto use = std::exchange(use_, nullptr))
    use->ReturnTokens(period_, num_tokens_ - std::min(num_taken, num_tokens_));
}

}  // namespace inflight
