// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/access/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace inflight::kserve {
namespace {

using testing::HasSubstr;

class KeysTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    const auto path = std::filesystem::path(testing::TempDir()) /
                      ("keys_" + std::to_string(getpid()) + "_" + name);
    std::ofstream(path) << text;
    return path;
  }
  std::shared_ptr<Keys> Load(const KeyFiles& files) {
    auto loaded = Keys::Load(files, clock_);
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return loaded.ok() ? std::shared_ptr<Keys>(*std::move(loaded)) : nullptr;
  }
  std::string Error(const std::string& json) {
    const auto loaded = Keys::Load({.access = Write("bad", json)}, clock_);
    return loaded.ok() ? "" : loaded.status().message();
  }

  ManualClock clock_;
};

// As sha256sum says.
TEST_F(KeysTest, HashesAreSha256) {
  EXPECT_EQ(ToHex(HashKey("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(KeysTest, NewKeysDiffer) {
  EXPECT_EQ(NewKey().size(), 46U);
  EXPECT_NE(NewKey(), NewKey());
}

TEST_F(KeysTest, AKeyHasTheRolesThatItsFileGives) {
  const auto loaded =
      Load({.access = Write("roles", R"({"keys": [
      {"name": "a", "sha256": ")" + ToHex(HashKey("one")) +
                                         R"(", "roles": ["inference"]},
      {"name": "b", "sha256": ")" + ToHex(HashKey("two")) +
                                         R"(", "roles": ["control", "settings"]}]})")});
  ASSERT_NE(loaded, nullptr);
  EXPECT_TRUE(loaded->Admit("Bearer one", Role::kInference).ok());
  EXPECT_TRUE(loaded->Admit("bearer two", Role::kControl).ok());
  EXPECT_EQ(loaded->Admit("Bearer one", Role::kControl).status.code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(loaded->Admit("Bearer two", Role::kInference).status.code(),
            StatusCode::kPermissionDenied);
  for (const char* none : {"", "Bearer ", "Bearer three", "Basic one", "one", "Bearer one "}) {
    EXPECT_EQ(loaded->Admit(none, Role::kInference).status.code(), StatusCode::kUnauthenticated)
        << none;
    EXPECT_TRUE(loaded->Admit(none, Role::kHealth).ok()) << none;
  }
}

TEST_F(KeysTest, AnonymousRolesAreThoseOfTheFile) {
  const auto loaded =
      Load({.access = Write("anonymous", R"({"keys": [], "anonymous": ["metrics"]})")});
  ASSERT_NE(loaded, nullptr);
  EXPECT_TRUE(loaded->Admit("", Role::kMetrics).ok());
  EXPECT_EQ(loaded->Admit("", Role::kHealth).status.code(), StatusCode::kUnauthenticated);
}

TEST_F(KeysTest, AnAdmissionSaysWhichKeyItCameWith) {
  const std::string one = R"({"keys": [{"name": "a", "sha256": ")" + ToHex(HashKey("one")) +
                          R"(", "roles": ["inference"]}])";
  const auto closed = Load({.access = Write("closed", one + "}")});
  const auto open =
      Load({.access = Write("open", one + R"(, "anonymous": ["health", "inference"]})")});
  ASSERT_TRUE(closed != nullptr && open != nullptr);
  for (const auto& loaded : {closed, open}) {
    EXPECT_EQ(IdentityOf(loaded->Admit("Bearer one", Role::kInference).client), HashKey("one"));
    EXPECT_EQ(IdentityOf(loaded->Admit("Bearer one", Role::kHealth, /*counts=*/false).client),
              HashKey("one"));
    for (const char* none : {"", "Bearer two", "one"})
      EXPECT_EQ(loaded->Admit(none, Role::kInference).client, nullptr) << none;
  }
}

TEST_F(KeysTest, AClientHasTheLimitsOfItsKey) {
  const auto loaded =
      Load({.access = Write("limits", R"({"keys": [{"name": "team-a", "sha256": ")" +
                                          ToHex(HashKey("one")) + R"(", "roles": ["inference"],
      "max_concurrent": 3, "default_timeout_ms": 1000, "max_timeout_ms": 60000,
      "tokens_per_period": 500, "period_s": 60, "share": 2.5}]})")});
  ASSERT_NE(loaded, nullptr);
  const auto client = loaded->Admit("Bearer one", Role::kInference).client;
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->name, "team-a");
  EXPECT_EQ(client->limits.max_concurrent, 3);
  EXPECT_EQ(client->limits.default_timeout_ms, 1000);
  EXPECT_EQ(client->limits.max_timeout_ms, 60000);
  EXPECT_EQ(client->limits.tokens_per_period, 500);
  EXPECT_EQ(client->limits.period_s, 60);
  EXPECT_EQ(client->limits.share, 2.5);
}

TEST_F(KeysTest, LinesAreKeysOrTheirHashes) {
  const auto loaded = Load(
      {.api_keys = Write("lines", "# clients\none\n\nsha256:" + ToHex(HashKey("two")) + "\r\n")});
  ASSERT_NE(loaded, nullptr);
  for (const char* key : {"Bearer one", "Bearer two"}) {
    EXPECT_TRUE(loaded->Admit(key, Role::kInference).ok());
    EXPECT_TRUE(loaded->Admit(key, Role::kMetrics).ok());
    EXPECT_EQ(loaded->Admit(key, Role::kSettings).status.code(), StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(loaded->Admit("Bearer # clients", Role::kInference).status.code(),
            StatusCode::kUnauthenticated);
}

TEST_F(KeysTest, KeysThatAreGivenHaveTheRolesOfLines) {
  const auto loaded = Load(
      {.given = {"one", "sha256:" + ToHex(HashKey("two"))}, .api_keys = Write("more", "three\n")});
  ASSERT_NE(loaded, nullptr);
  for (const char* key : {"Bearer one", "Bearer two", "Bearer three"}) {
    EXPECT_TRUE(loaded->Admit(key, Role::kInference).ok());
    EXPECT_TRUE(loaded->Admit(key, Role::kMetrics).ok());
    EXPECT_EQ(loaded->Admit(key, Role::kSettings).status.code(), StatusCode::kPermissionDenied);
  }
}

TEST_F(KeysTest, AKeysRequestsASecondAreBounded) {
  const auto loaded = Load(
      {.access = Write("rate", R"({"keys": [{"name": "a", "sha256": ")" + ToHex(HashKey("one")) +
                                   R"(", "roles": ["inference"],
      "requests_per_second": 2, "burst": 3}]})")});
  ASSERT_NE(loaded, nullptr);
  const auto admitted = [&] {
    int count = 0;
    while (loaded->Admit("Bearer one", Role::kInference).ok()) ++count;
    return count;
  };
  EXPECT_EQ(admitted(), 3);
  EXPECT_EQ(loaded->Admit("Bearer one", Role::kInference).status.code(),
            StatusCode::kResourceExhausted);
  clock_.AdvanceNs(1'000'000'000);
  EXPECT_EQ(admitted(), 2);
  clock_.AdvanceNs(60'000'000'000);
  EXPECT_EQ(admitted(), 3);
}

TEST_F(KeysTest, ARefusalNamesTheKeyItsBoundAndWhenToComeBack) {
  const auto loaded =
      Load({.access = Write("wait", R"({"keys": [{"name": "team-a", "sha256": ")" +
                                        ToHex(HashKey("one")) + R"(", "roles": ["inference"],
      "requests_per_second": 0.25, "burst": 2}]})")});
  ASSERT_NE(loaded, nullptr);
  const auto admit = [&] { return loaded->Admit("Bearer one", Role::kInference); };
  EXPECT_TRUE(admit().ok() && admit().ok());
  const Admission refused = admit();
  EXPECT_EQ(refused.status.reason(), Reason::kOverLimit);
  EXPECT_EQ(refused.status.retry_after_s(), 4);  // 1 request / 0.25 a second
  EXPECT_EQ(refused.status.message(),
            "key 'team-a' has sent more than its requests_per_second of 0.25 with a burst of 2 "
            "allow; try again in 4 s");
  EXPECT_EQ(refused.status.message().find("one"), std::string::npos);
  clock_.AdvanceNs(1'500'000'000);
  EXPECT_EQ(admit().status.retry_after_s(), 3);  // of 2.5
  clock_.AdvanceNs(2'500'000'000);
  EXPECT_TRUE(admit().ok());
  EXPECT_EQ(loaded->Admit("Bearer two", Role::kInference).status.retry_after_s(), 0);
}

TEST_F(KeysTest, WhatAKeyHasUsedStaysUsedWhenFilesAreReadAnew) {
  const auto keys = [](double per_second, int burst) {
    return R"({"keys": [{"name": "new", "sha256": ")" + ToHex(HashKey("two")) +
           R"(", "roles": ["inference"]}, {"name": "a", "sha256": ")" + ToHex(HashKey("one")) +
           R"(", "roles": ["inference"], "requests_per_second": )" + std::to_string(per_second) +
           R"(, "burst": )" + std::to_string(burst) + "}]}";
  };
  const std::string path = Write("carried", keys(1, 4));
  const auto loaded = Load({.access = path});
  ASSERT_NE(loaded, nullptr);
  const auto change = [&](const std::string& text) {
    const auto before = std::filesystem::last_write_time(path);
    std::ofstream(path) << text;
    std::filesystem::last_write_time(path, before + std::chrono::seconds(1));
    EXPECT_TRUE(loaded->ReloadIfChanged().ok());
  };
  const auto admitted = [&] {
    int count = 0;
    while (loaded->Admit("Bearer one", Role::kInference).ok()) ++count;
    return count;
  };
  EXPECT_EQ(admitted(), 4);
  change(keys(1, 100));  // a larger burst is no gift
  EXPECT_EQ(admitted(), 0);
  clock_.AdvanceNs(3'000'000'000);
  change(keys(10, 100));  // the seconds before counted at the former rate
  EXPECT_EQ(admitted(), 3);
  clock_.AdvanceNs(1'000'000'000);
  change(keys(1, 2));  // a smaller one holds at once
  EXPECT_EQ(admitted(), 2);
}

TEST_F(KeysTest, WhatAKeyBeganGoesNoFurtherWithoutIt) {
  const auto keys = [](const std::string& name, const std::string& roles) {
    return R"({"keys": [{"name": "a", "sha256": ")" + ToHex(HashKey(name)) + R"(", "roles": [)" +
           roles + "]}]}";
  };
  const std::string path = Write("revoked", keys("one", R"("inference")"));
  const auto loaded = Load({.access = path});
  ASSERT_NE(loaded, nullptr);
  const auto client = loaded->Admit("Bearer one", Role::kInference).client;
  ASSERT_NE(client, nullptr);
  const auto may_infer_with = [&](const std::string& text) {
    const auto before = std::filesystem::last_write_time(path);
    std::ofstream(path) << text;
    std::filesystem::last_write_time(path, before + std::chrono::seconds(1));
    EXPECT_TRUE(loaded->ReloadIfChanged().ok());
    return client->use->CheckMayInfer(client->name).code();
  };
  EXPECT_EQ(may_infer_with(keys("one", R"("inference", "metrics")")), StatusCode::kOk);
  EXPECT_EQ(may_infer_with(keys("one", R"("metrics")")), StatusCode::kUnauthenticated);
  EXPECT_EQ(may_infer_with(keys("one", R"("inference")")), StatusCode::kOk);
  EXPECT_EQ(may_infer_with(keys("two", R"("inference")")), StatusCode::kUnauthenticated);
}

TEST_F(KeysTest, ChangedFilesAreReadAnewAndBrokenOnesLeaveTheFormer) {
  const std::string path = Write("reload", "one\n");
  const auto loaded = Load({.api_keys = path});
  ASSERT_NE(loaded, nullptr);
  const auto change = [&](const std::string& text) {
    const auto before = std::filesystem::last_write_time(path);
    std::ofstream(path) << text;
    std::filesystem::last_write_time(path, before + std::chrono::seconds(1));
    return loaded->ReloadIfChanged();
  };
  EXPECT_TRUE(change("two\n").ok());
  EXPECT_EQ(loaded->Admit("Bearer one", Role::kInference).status.code(),
            StatusCode::kUnauthenticated);
  EXPECT_TRUE(loaded->Admit("Bearer two", Role::kInference).ok());
  EXPECT_THAT(change("sha256:12\n").message(), HasSubstr("line 1: 64 lower-case"));
  EXPECT_TRUE(loaded->Admit("Bearer two", Role::kInference).ok());
  EXPECT_TRUE(loaded->ReloadIfChanged().ok());  // told once
}

TEST_F(KeysTest, WrongFilesAreToldByWhatIsWrong) {
  const std::string hash = ToHex(HashKey("one"));
  const auto key = [&](const std::string& more) {
    return R"({"keys": [{"name": "a", "sha256": ")" + hash + "\"" + more + "}]}";
  };
  EXPECT_THAT(Error("{"), HasSubstr("it is no JSON"));
  EXPECT_THAT(Error("{}"), HasSubstr("'keys', an array, is needed"));
  EXPECT_THAT(Error(R"({"keys": [], "key": 1})"), HasSubstr("'key' is not known"));
  EXPECT_THAT(Error(key("")), HasSubstr("keys[0].roles: an array of roles is needed"));
  EXPECT_THAT(Error(key(R"(, "roles": ["admin"])")), HasSubstr("got \"admin\", roles are health"));
  EXPECT_THAT(Error(key(R"(, "roles": [], "rate": 1)")), HasSubstr("keys[0]: 'rate' is not known"));
  EXPECT_THAT(Error(key(R"(, "roles": [], "requests_per_second": 0)")),
              HasSubstr("keys[0].requests_per_second: got 0, a number above 0"));
  for (const char* limit : {"max_concurrent", "default_timeout_ms", "max_timeout_ms"}) {
    for (const char* bad : {"0", "-1", "1.5", "\"1\"", "true", "1e30"}) {
      EXPECT_THAT(Error(key(R"(, "roles": [], ")" + std::string(limit) + "\": " + bad)),
                  HasSubstr(std::string(limit) + ": got "))
          << bad;
    }
  }
  for (const char* bad : {"0", "0.001", "101", "-1", "null"})
    EXPECT_THAT(Error(key(std::string(R"(, "roles": [], "share": )") + bad)),
                HasSubstr("share: got"));
  EXPECT_THAT(Error(key(R"(, "roles": [], "tokens_per_period": 10)")),
              HasSubstr("keys[0]: tokens_per_period and period_s are needed together"));
  EXPECT_THAT(Error(key(R"(, "roles": [], "tokens_per_period": 10, "period_s": 99999999999)")),
              HasSubstr("keys[0].period_s: got 99999999999, at most a year"));
  EXPECT_THAT(Error(key(R"(, "roles": [], "default_timeout_ms": 2, "max_timeout_ms": 1)")),
              HasSubstr("default_timeout_ms is more than max_timeout_ms"));
  EXPECT_THAT(Error(R"({"keys": [{"name": "a", "sha256": "12", "roles": []}]})"),
              HasSubstr("keys[0].sha256: 64 lower-case hexadecimal digits"));
  const auto missing = Keys::Load({.access = "/nonexistent/file"}, clock_);
  EXPECT_FALSE(missing.ok());
  const auto no_text = Keys::Load({.given = {"one", ""}}, clock_);
  EXPECT_EQ(no_text.status().message(), "--api-key: got '', a key is needed");
  const auto empty = Keys::Load({.api_keys = Write("empty", "# none\n")}, clock_);
  EXPECT_THAT(empty.status().message(), HasSubstr("it has no key; `inflight key` makes one"));
}

}  // namespace
}  // namespace inflight::kserve
