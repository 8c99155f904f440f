// SPDX-License-Identifier: Apache-2.0
#include "base/memory_account.h"

#include <utility>

namespace inflight {
namespace {

constexpr size_t kReserveBytes = kSmallShareBytes / 4;

}  // namespace

MemoryLimits MemoryLimits::Of(size_t hard_bytes) {
  return {.hard_bytes = hard_bytes,
          .soft_bytes = hard_bytes / 5 * 4,
          .client_bytes = hard_bytes / 4 * 3,
          .connection_bytes = hard_bytes / 2};
}

// --- AccountShare
// ---------------------------------------------------------------------------------

AccountShare::AccountShare(std::shared_ptr<MemoryAccount> account,
                           std::shared_ptr<AccountShare> client, size_t limit,
                           std::function<void()> end)
    : account_(std::move(account)),
      client_(std::move(client)),
      limit_(limit),
      end_(std::move(end)) {}

AccountShare::~AccountShare() { account_->Forget(*this); }

Status AccountShare::Add(size_t bytes) {
  const size_t own = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const size_t clients = client_->used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const size_t total = account_->used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  struct Taken {  // given back where it is refused, or where even that finds no memory
    AccountShare* share;
    size_t bytes;
    ~Taken() {
      if (share != nullptr) share->Remove(bytes);
    }
  } taken = {this, bytes};
  if (own > kSmallShareBytes && !is_listed_.load(std::memory_order_relaxed)) account_->List(*this);
  Status status;
  if (own > limit_) {
    status = account_->Refuse("this connection", limit_);
  } else if (total > account_->limits().hard_bytes) {
    account_->MakeRoom(*this, nullptr, total, account_->limits().soft_bytes);
    status = account_->Refuse("all clients together", account_->limits().hard_bytes);
  } else if (clients > client_->limit_ &&
             !account_->MakeRoom(*this, client_.get(), clients, client_->limit_)) {
    status = account_->Refuse("this client", client_->limit_);
  } else if (total > account_->limits().soft_bytes &&
             !account_->MakeRoom(*this, nullptr, total, account_->limits().soft_bytes)) {
    status = account_->Refuse("all clients together", account_->limits().soft_bytes);
  }
  if (status.ok()) taken.share = nullptr;
  return status;
}

void AccountShare::Remove(size_t bytes) {
  used_.fetch_sub(bytes, std::memory_order_relaxed);
  client_->used_.fetch_sub(bytes, std::memory_order_relaxed);
  account_->used_.fetch_sub(bytes, std::memory_order_relaxed);
}

// --- MemoryAccount -------------------------------------------------------------------------------

std::shared_ptr<MemoryAccount> MemoryAccount::Make(const MemoryLimits& limits) {
  return std::shared_ptr<MemoryAccount>(new MemoryAccount(limits));
}

std::shared_ptr<AccountShare> MemoryAccount::NewConnection(const std::string& client,
                                                           std::function<void()> end) {
  std::shared_ptr<AccountShare> owner = FindClient(client);
  if (owner == nullptr) owner = AddClient(client);
  return std::shared_ptr<AccountShare>(new AccountShare(shared_from_this(), std::move(owner),
                                                        limits_.connection_bytes, std::move(end)));
}

std::shared_ptr<AccountShare> MemoryAccount::FindClient(const std::string& client) {
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(client);
  return found == clients_.end() ? nullptr : found->second.lock();
}

// What is made here may go at once, for want of memory or because another thread was first. That
// takes the mutex, which must be free then.
std::shared_ptr<AccountShare> MemoryAccount::AddClient(const std::string& client) {
  std::shared_ptr<AccountShare> made(
      new AccountShare(shared_from_this(), nullptr, limits_.client_bytes, nullptr));
  made->name_ = client;
  const std::lock_guard lock(mutex_);
  auto& place = clients_[client];
  if (auto other = place.lock()) return other;
  place = made;
  return made;
}

// Tells the largest that waits to end, of one client or of all, unless those that were told make
// room enough. False where the one that asks has to be refused.
bool MemoryAccount::MakeRoom(AccountShare& asks, AccountShare* client, size_t used, size_t mark) {
  const std::lock_guard lock(mutex_);
  const size_t ending = client != nullptr ? client->ending_ : ending_;
  if (used <= mark + ending) return true;
  AccountShare* largest = nullptr;
  size_t most = asks.used_bytes();
  for (AccountShare* share : large_) {
    if (client != nullptr && share->client_.get() != client) continue;
    const bool may_end = share->waits_.load(std::memory_order_relaxed) && share->ending_ == 0;
    if (!may_end || share->used_bytes() <= most) continue;
    largest = share;
    most = share->used_bytes();
  }
  if (largest == nullptr) return asks.used_bytes() <= kSmallShareBytes;
  largest->end_();
  largest->ending_ = most;
  largest->client_->ending_ += most;
  ending_ += most;
  num_ended_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void MemoryAccount::List(AccountShare& share) {
  const std::lock_guard lock(mutex_);
  large_.insert(&share);
  share.is_listed_.store(true, std::memory_order_relaxed);
}

void MemoryAccount::Forget(AccountShare& share) {
  if (share.client_ != nullptr && !share.is_listed_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  if (share.client_ != nullptr) {
    ending_ -= share.ending_;
    share.client_->ending_ -= share.ending_;
    large_.erase(&share);
    return;
  }
  const auto place = clients_.find(share.name_);  // another of this name may have taken it
  if (place != clients_.end() && place->second.expired()) clients_.erase(place);
}

Status MemoryAccount::Refuse(const std::string& what, size_t limit) {
  num_refused_.fetch_add(1, std::memory_order_relaxed);
  return OutOfMemory("the requests under way of " + what + " would take more than the limit of " +
                     std::to_string(limit) +
                     " bytes; try again later, or raise --request-memory-byte-size");
}

// --- MemoryCharge --------------------------------------------------------------------------------

MemoryCharge::MemoryCharge(MemoryCharge&& other) noexcept
    : share_(std::move(other.share_)), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  if (this == &other) return *this;
  Release();
  share_ = std::move(other.share_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Status MemoryCharge::Resize(size_t bytes) {
  if (share_ != nullptr && bytes > bytes_) {
    if (Status status = share_->Add(bytes - bytes_); !status.ok()) return status;
  } else if (share_ != nullptr && bytes < bytes_) {
    share_->Remove(bytes_ - bytes);
  }
  bytes_ = bytes;
  return Status::Ok();
}

Status MemoryCharge::Reserve(size_t bytes) {
  if (bytes <= bytes_) return Status::Ok();
  return Resize((bytes + kReserveBytes - 1) / kReserveBytes * kReserveBytes);
}

void MemoryCharge::Release() {
  if (share_ != nullptr && bytes_ > 0) share_->Remove(std::exchange(bytes_, 0));
}

}  // namespace inflight
