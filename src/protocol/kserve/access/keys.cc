// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/access/keys.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/status_macros.h"

namespace inflight::kserve {
namespace {

using nlohmann::json;

constexpr char kHashPrefix[] = "sha256:";
constexpr char kBearer[] = "Bearer ";
constexpr double kMostPerSecond = 1e6;
constexpr int64_t kMostPeriod = 366 * 86400;
constexpr double kLeastShare = 0.01;
constexpr double kMostShare = 100;

std::optional<KeyHash> HashFromHex(std::string_view digits) {
  const auto bytes = FromHex(digits);
  KeyHash hash{};
  if (!bytes || bytes->size() != hash.size()) return std::nullopt;
  std::copy(bytes->begin(), bytes->end(), hash.begin());
  return hash;
}

bool IsBearer(std::string_view authorization) {
  constexpr size_t kLength = sizeof(kBearer) - 1;
  return authorization.size() > kLength &&
         std::equal(kBearer, kBearer + kLength, authorization.begin(),
                    [](char a, char b) { return (a | 0x20) == (b | 0x20); });
}

Status Wrong(const std::string& where, const std::string& what) {
  return InvalidArgument(where + ": " + what);
}

Status CheckMembers(const json& object, const std::string& where,
                    std::initializer_list<std::string_view> known) {
  if (!object.is_object()) return Wrong(where, "an object is needed");
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      return Wrong(where, "'" + name + "' is not known");
  }
  return Status::Ok();
}

Result<Roles> ReadRoles(const json& names, const std::string& where) {
  Roles roles;
  if (!names.is_array()) return Wrong(where, "an array of roles is needed");
  for (const json& name : names) {
    const auto role =
        name.is_string() ? FindRole(name.get_ref<const std::string&>()) : std::optional<Role>();
    if (!role) {
      return Wrong(where, "got " + name.dump() +
                              ", roles are health, inference, metrics, control, settings and "
                              "shared_memory");
    }
    roles.set(static_cast<size_t>(*role));
  }
  return roles;
}

Result<double> ReadRate(const json& object, const char* name, double absent,
                        const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end()) return absent;
  if (found->is_number() && found->get<double>() > 0 && found->get<double>() <= kMostPerSecond)
    return found->get<double>();
  return Wrong(where + "." + name, "got " + found->dump() + ", a number above 0 to 1e6 is needed");
}

Result<int64_t> ReadCount(const json& object, const char* name, const std::string& where) {
  constexpr int64_t kMost = int64_t{1} << 50;
  const auto found = object.find(name);
  if (found == object.end()) return int64_t{0};
  if (found->is_number_unsigned() && found->get<uint64_t>() >= 1 && found->get<uint64_t>() <= kMost)
    return found->get<int64_t>();
  return Wrong(where + "." + name, "got " + found->dump() + ", an integer from 1 to " +
                                       std::to_string(kMost) +
                                       " is needed (leave it out for no bound)");
}

Result<ClientLimits> ReadLimits(const json& object, const std::string& where) {
  ClientLimits limits;
  ASSIGN_OR_RETURN(limits.requests_per_second, ReadRate(object, "requests_per_second", 0, where));
  ASSIGN_OR_RETURN(limits.burst,
                   ReadRate(object, "burst", std::max(1.0, limits.requests_per_second), where));
  if (limits.burst < 1) return Wrong(where + ".burst", "at least 1 is needed");
  ASSIGN_OR_RETURN(limits.max_concurrent, ReadCount(object, "max_concurrent", where));
  ASSIGN_OR_RETURN(limits.default_timeout_ms, ReadCount(object, "default_timeout_ms", where));
  ASSIGN_OR_RETURN(limits.max_timeout_ms, ReadCount(object, "max_timeout_ms", where));
  ASSIGN_OR_RETURN(limits.tokens_per_period, ReadCount(object, "tokens_per_period", where));
  ASSIGN_OR_RETURN(limits.period_s, ReadCount(object, "period_s", where));
  if ((limits.tokens_per_period > 0) != (limits.period_s > 0))
    return Wrong(where, "tokens_per_period and period_s are needed together");
  if (limits.period_s > kMostPeriod) {
    return Wrong(where + ".period_s", "got " + std::to_string(limits.period_s) +
                                          ", at most a year of seconds is needed");
  }
  if (limits.max_timeout_ms > 0 && limits.default_timeout_ms > limits.max_timeout_ms)
    return Wrong(where, "default_timeout_ms is more than max_timeout_ms");
  ASSIGN_OR_RETURN(limits.share, ReadRate(object, "share", 1, where));
  if (limits.share < kLeastShare || limits.share > kMostShare)
    return Wrong(where + ".share", "got " + object["share"].dump() + ", 0.01 to 100 is needed");
  return limits;
}

}  // namespace

struct Keys::Key {
  std::shared_ptr<Client> client;
  Roles roles;
};

struct Keys::Table {
  std::vector<Key> keys;
  Roles anonymous = Roles().set(static_cast<size_t>(Role::kHealth));

  // All are looked at, whichever matches.
  Key* Find(const KeyHash& hash) {
    Key* found = nullptr;
    for (Key& key : keys) {
      if (CRYPTO_memcmp(key.client->identity.data(), hash.data(), hash.size()) == 0) found = &key;
    }
    return found;
  }

  Status Add(Key key, const std::string& where) {
    if (Find(key.client->identity) != nullptr) return Wrong(where, "the key is there already");
    keys.push_back(std::move(key));
    return Status::Ok();
  }

  Status ReadKey(const json& object, const std::string& where, int64_t now_ns) {
    RETURN_IF_ERROR(CheckMembers(
        object, where,
        {"name", "sha256", "roles", "requests_per_second", "burst", "max_concurrent",
         "default_timeout_ms", "max_timeout_ms", "tokens_per_period", "period_s", "share"}));
    for (const char* needed : {"name", "sha256"}) {
      if (!object.contains(needed) || !object[needed].is_string())
        return Wrong(where + "." + needed, "a string is needed");
    }
    Key key;
    const auto hash = HashFromHex(object["sha256"].get<std::string>());
    if (!hash) return Wrong(where + ".sha256", "64 lower-case hexadecimal digits are needed");
    key.client = std::make_shared<Client>(
        Client{.identity = *hash, .name = object["name"].get<std::string>()});
    if (!object.contains("roles")) return Wrong(where + ".roles", "an array of roles is needed");
    ASSIGN_OR_RETURN(key.roles, ReadRoles(object["roles"], where + ".roles"));
    ASSIGN_OR_RETURN(key.client->limits, ReadLimits(object, where));
    key.client->use = std::make_shared<ClientUse>(key.client->limits, now_ns);
    return Add(std::move(key), where);
  }

  // What the keys have used stays used when their files are read anew, and what those began that
  // are gone goes no further.
  void ContinueFrom(const Table& former, int64_t now_ns) {
    std::map<KeyHash, std::shared_ptr<ClientUse>> before;
    for (const Key& key : former.keys) before.emplace(key.client->identity, key.client->use);
    constexpr auto kInfer = static_cast<size_t>(Role::kInference);
    for (Key& key : keys) {
      auto found = before.extract(key.client->identity);
      if (found.empty()) continue;
      key.client->use = std::move(found.mapped());
      key.client->use->Change(key.client->limits, now_ns);
      key.client->use->SetMayInfer(key.roles[kInfer] || anonymous[kInfer]);
    }
    for (const auto& [identity, use] : before) use->SetMayInfer(false);
  }

  Status ReadAccess(const std::string& path, int64_t now_ns) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (root.is_discarded()) return Wrong(path, "it is no JSON");
    RETURN_IF_ERROR(CheckMembers(root, path, {"keys", "anonymous"}));
    if (root.contains("anonymous")) {
      ASSIGN_OR_RETURN(anonymous, ReadRoles(root["anonymous"], path + ": anonymous"));
    }
    if (!root.contains("keys") || !root["keys"].is_array())
      return Wrong(path, "'keys', an array, is needed");
    for (size_t i = 0; i < root["keys"].size(); ++i) {
      RETURN_IF_ERROR(ReadKey(root["keys"][i], path + ": keys[" + std::to_string(i) + "]", now_ns));
    }
    return Status::Ok();
  }

  // `text` is the key, or sha256:<hex>.
  Status AddClientKey(std::string_view text, const std::string& where, int64_t now_ns) {
    Key key;
    Client client{.name = where};
    key.roles.set(static_cast<size_t>(Role::kInference));
    key.roles.set(static_cast<size_t>(Role::kMetrics));
    if (text.starts_with(kHashPrefix)) {
      const auto hash = HashFromHex(text.substr(sizeof(kHashPrefix) - 1));
      if (!hash) return Wrong(where, "64 lower-case hexadecimal digits are needed after sha256:");
      client.identity = *hash;
    } else {
      client.identity = HashKey(text);
    }
    client.use = std::make_shared<ClientUse>(ClientLimits(), now_ns);
    key.client = std::make_shared<Client>(std::move(client));
    return Add(std::move(key), where);
  }

  Status ReadGiven(const std::vector<std::string>& given, int64_t now_ns) {
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i].empty()) return Wrong("--api-key", "got '', a key is needed");
      const std::string number = given.size() > 1 ? " number " + std::to_string(i + 1) : "";
      RETURN_IF_ERROR(AddClientKey(given[i], "--api-key" + number, now_ns));
    }
    return Status::Ok();
  }

  Status ReadKeys(const std::string& path, int64_t now_ns) {
    bool has_key = false;
    ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    size_t number = 0;
    for (size_t start = 0; start < text.size();) {
      const size_t end = std::min(text.find('\n', start), text.size());
      std::string_view line = std::string_view(text).substr(start, end - start);
      start = end + 1;
      ++number;
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
      if (line.empty() || line.front() == '#') continue;
      RETURN_IF_ERROR(AddClientKey(line, path + ": line " + std::to_string(number), now_ns));
      has_key = true;
    }
    return has_key ? Status::Ok() : Wrong(path, "it has no key; `inflight key` makes one");
  }
};

KeyHash HashKey(std::string_view key) {
  KeyHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hash;
}

std::string ToHex(const KeyHash& hash) {
  return inflight::ToHex({reinterpret_cast<const char*>(hash.data()), hash.size()});
}

std::string NewKey() {
  static constexpr char kLetters[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::array<unsigned char, 43> random;  // six bits of each: 258
  CHECK_EQ(RAND_bytes(random.data(), static_cast<int>(random.size())), 1);
  std::string key = "if-";
  for (const unsigned char byte : random) key += kLetters[byte % 64];
  return key;
}

Keys::Keys(KeyFiles files, Clock& clock) : files_(std::move(files)), clock_(clock) {}

Keys::~Keys() = default;

Keys::Times Keys::ReadTimes() const {
  Times times;
  std::error_code ec;
  if (!files_.access.empty()) times[0] = std::filesystem::last_write_time(files_.access, ec);
  if (!files_.api_keys.empty()) times[1] = std::filesystem::last_write_time(files_.api_keys, ec);
  return times;
}

Result<std::shared_ptr<Keys::Table>> Keys::Read(const KeyFiles& files, int64_t now_ns) {
  auto table = std::make_shared<Table>();
  RETURN_IF_ERROR(table->ReadGiven(files.given, now_ns));
  if (!files.access.empty()) RETURN_IF_ERROR(table->ReadAccess(files.access, now_ns));
  if (!files.api_keys.empty()) RETURN_IF_ERROR(table->ReadKeys(files.api_keys, now_ns));
  return table;
}

Result<std::unique_ptr<Keys>> Keys::Load(const KeyFiles& files, Clock& clock) {
  std::unique_ptr<Keys> keys(new Keys(files, clock));
  keys->times_ = keys->ReadTimes();
  ASSIGN_OR_RETURN(keys->table_, Read(files, clock.NowNs()));
  return keys;
}

Admission Keys::Admit(std::string_view authorization, Role role, bool counts) {
  const auto place = static_cast<size_t>(role);
  const bool has_key = IsBearer(authorization);
  const KeyHash hash = has_key ? HashKey(authorization.substr(sizeof(kBearer) - 1)) : KeyHash{};
  const std::lock_guard lock(mutex_);
  Key* key = has_key ? table_->Find(hash) : nullptr;
  if (table_->anonymous[place]) return {.client = key != nullptr ? key->client : nullptr};
  if (!has_key) {
    return {Status(StatusCode::kUnauthenticated,
                   "this request needs a key: send it as 'Authorization: Bearer <key>'")};
  }
  if (key == nullptr) return {Status(StatusCode::kUnauthenticated, "the key is not known")};
  if (!key->roles[place]) {
    return {Status(StatusCode::kPermissionDenied,
                   "the key does not have the role '" + std::string(NameOf(role)) + "'")};
  }
  if (counts) {
    Status status = key->client->use->TakeRequest(key->client->name, clock_.NowNs());
    if (!status.ok()) return {std::move(status)};
  }
  return {.client = key->client};
}

bool Keys::SeesReuse(std::string_view authorization) {
  const KeyHash hash =
      IsBearer(authorization) ? HashKey(authorization.substr(sizeof(kBearer) - 1)) : KeyHash{};
  const std::lock_guard lock(mutex_);
  const Key* key = IsBearer(authorization) ? table_->Find(hash) : nullptr;
  const Roles roles = key != nullptr ? key->roles | table_->anonymous : table_->anonymous;
  return roles[static_cast<size_t>(Role::kControl)] ||
         !roles[static_cast<size_t>(Role::kInference)];
}

std::shared_ptr<const Client> Keys::Find(std::string_view authorization) {
  if (!IsBearer(authorization)) return nullptr;
  const KeyHash hash = HashKey(authorization.substr(sizeof(kBearer) - 1));
  const std::lock_guard lock(mutex_);
  const Key* key = table_->Find(hash);
  return key != nullptr ? key->client : nullptr;
}

Status Keys::ReloadIfChanged() {
  const Times times = ReadTimes();
  {
    const std::lock_guard lock(mutex_);
    if (times == times_) return Status::Ok();
    times_ = times;
  }
  ASSIGN_OR_RETURN(auto table, Read(files_, clock_.NowNs()));
  const std::lock_guard lock(mutex_);
  table->ContinueFrom(*table_, clock_.NowNs());
  table_ = std::move(table);
  return Status::Ok();
}

}  // namespace inflight::kserve
