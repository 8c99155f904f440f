// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/access/access_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace inflight::kserve {
namespace {

using testing::HasSubstr;

const HeaderList kNone;

Admission AskHttp(const AccessPolicy& policy, Api api, const HeaderList& headers = kNone) {
  return policy.Admit({.entrance = Entrance::kHttp, .headers = headers}, api);
}

Admission AskGrpc(const AccessPolicy& policy, Api api, const HeaderList& headers = kNone) {
  return policy.Admit({.entrance = Entrance::kGrpc, .headers = headers}, api);
}

std::shared_ptr<AccessPolicy> Load(const AccessRules& rules) {
  auto policy = AccessPolicy::Load(rules);
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return policy.ok() ? *policy : std::make_shared<AccessPolicy>();
}

std::string WriteKeys(const std::string& text) {
  const auto path = std::filesystem::path(testing::TempDir()) /
                    ("policy_keys_" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << text;
  return path;
}

TEST(AccessPolicy, WithoutRulesAllIsOpen) {
  const AccessPolicy policy;
  for (size_t api = 0; api < kNumApis; ++api) {
    EXPECT_TRUE(AskHttp(policy, static_cast<Api>(api)).ok());
    EXPECT_TRUE(AskGrpc(policy, static_cast<Api>(api)).ok());
  }
  EXPECT_FALSE(policy.asks_for_keys());
}

TEST(AccessPolicy, ARuleOfOneProtocolHoldsOverBoth) {
  const auto policy =
      Load({.restrictions = {.http = {"inference:Key=one"}, .grpc = {"trace:Key=two"}}});
  EXPECT_EQ(AskHttp(*policy, Api::kInference).status.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(AskGrpc(*policy, Api::kInference).status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(AskHttp(*policy, Api::kTrace).status.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(AskGrpc(*policy, Api::kTrace).status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(AskHttp(*policy, Api::kInference, {{"key", "one"}}).ok());
  EXPECT_TRUE(AskGrpc(*policy, Api::kInference, {{"triton-grpc-protocol-key", "one"}}).ok());
  EXPECT_TRUE(AskHttp(*policy, Api::kTrace, {{"KEY", "two"}}).ok());
  EXPECT_TRUE(AskGrpc(*policy, Api::kTrace, {{"triton-grpc-protocol-key", "two"}}).ok());
  EXPECT_FALSE(AskGrpc(*policy, Api::kTrace, {{"key", "two"}}).ok());
  EXPECT_FALSE(AskHttp(*policy, Api::kTrace, {{"triton-grpc-protocol-key", "two"}}).ok());
  EXPECT_TRUE(AskHttp(*policy, Api::kLogging).ok());
}

TEST(AccessPolicy, AKeyIsAskedForBeforeAHeader) {
  const std::string file = WriteKeys(R"({"keys": [{"name": "a", "sha256": ")" +
                                     ToHex(HashKey("one")) + R"(", "roles": ["inference"]}]})");
  const auto policy =
      Load({.keys = {.access = file}, .restrictions = {.http = {"inference:word=open"}}});
  EXPECT_TRUE(policy->asks_for_keys());
  EXPECT_EQ(AskHttp(*policy, Api::kInference, {{"word", "open"}}).status.code(),
            StatusCode::kUnauthenticated);
  const HeaderList key = {{"AUTHORIZATION", "Bearer one"}};
  const Admission lacking = AskHttp(*policy, Api::kInference, key);
  EXPECT_TRUE(lacking.lacks_header);
  EXPECT_EQ(lacking.status.message(), "This API is restricted, expecting header 'word'");
  EXPECT_FALSE(AskHttp(*policy, Api::kTrace, key).lacks_header);
  const Admission admitted =
      AskHttp(*policy, Api::kInference, {{"Word", "open"}, {"authorization", "Bearer one"}});
  EXPECT_TRUE(admitted.ok());
  ASSERT_NE(admitted.client, nullptr);
  EXPECT_EQ(admitted.client->name, "a");
}

TEST(AccessPolicy, AKeyMayComeInItsOwnHeader) {
  const auto policy = Load(
      {.keys = {.access = WriteKeys(R"({"keys": [{"name": "a", "sha256": ")" +
                                    ToHex(HashKey("one")) + R"(", "roles": ["inference"]}]})")}});
  EXPECT_TRUE(AskHttp(*policy, Api::kInference, {{"X-Api-Key", "one"}}).ok());
  EXPECT_FALSE(AskHttp(*policy, Api::kInference, {{"x-api-key", "two"}}).ok());
  EXPECT_FALSE(
      AskHttp(*policy, Api::kInference, {{"x-api-key", "one"}, {"authorization", "Bearer two"}})
          .ok())
      << "Authorization goes before it";
}

TEST(AccessPolicy, EachApiNeedsTheRoleOfItsRow) {
  for (size_t i = 0; i < kNumApis; ++i) {
    const auto api = static_cast<Api>(i);
    const std::string role(NameOf(RowOf(api).role));
    const auto policy =
        Load({.keys = {.access = WriteKeys(R"({"keys": [], "anonymous": [")" + role + R"("]})")}});
    for (size_t j = 0; j < kNumApis; ++j) {
      const bool has_role = RowOf(static_cast<Api>(j)).role == RowOf(api).role;
      EXPECT_EQ(AskHttp(*policy, static_cast<Api>(j)).ok(), has_role) << role << j;
      EXPECT_EQ(AskGrpc(*policy, static_cast<Api>(j)).ok(), has_role) << role << j;
    }
    EXPECT_EQ(FindApi(RowOf(api).name), api);
    EXPECT_EQ(FindRole(role), RowOf(api).role);
  }
}

TEST(AccessPolicy, WhoInfersSeesNoSumsOfReuseUnlessTheyControl) {
  const auto key = [](const std::string& name, const std::string& roles) {
    return R"({"name": ")" + name + R"(", "sha256": ")" + ToHex(HashKey(name)) +
           R"(", "roles": [)" + roles + "]}";
  };
  const std::string keys = R"({"keys": [)" + key("scraper", R"("metrics")") + "," +
                           key("client", R"("metrics", "inference")") + "," +
                           key("operator", R"("metrics", "inference", "control")") + "]";
  const auto sees = [](const AccessPolicy& policy, const HeaderList& headers,
                       Entrance entrance = Entrance::kHttp) {
    return policy.SeesReuse({.entrance = entrance, .headers = headers});
  };
  const HeaderList client = {{"authorization", "Bearer client"}};
  const auto policy =
      Load({.keys = {.access = WriteKeys(keys + R"(, "anonymous": ["metrics"]})")}});
  EXPECT_TRUE(sees(*policy, {{"authorization", "Bearer scraper"}}));
  EXPECT_TRUE(sees(*policy, {{"authorization", "Bearer operator"}}));
  EXPECT_FALSE(sees(*policy, client));
  EXPECT_FALSE(sees(*policy, {{"x-api-key", "client"}}));
  EXPECT_TRUE(sees(*policy, kNone)) << "nobody without a key may infer";
  EXPECT_TRUE(sees(*policy, client, Entrance::kAdminSocket)) << "which asks for no keys";
  const auto open =
      Load({.keys = {.access = WriteKeys(keys + R"(, "anonymous": ["metrics", "inference"]})")}});
  EXPECT_FALSE(sees(*open, kNone));
  EXPECT_FALSE(sees(*open, {{"authorization", "Bearer scraper"}})) << "it may infer without it";
  EXPECT_TRUE(sees(*open, {{"authorization", "Bearer operator"}}));
  EXPECT_TRUE(sees(AccessPolicy(), client)) << "without keys there are no tenants";
}

constexpr Api kAdministration[] = {Api::kModelRepository, Api::kTrace, Api::kLogging,
                                   Api::kProfile};

TEST(AccessPolicy, AdministrationIsAnsweredAtItsPlaceAlone) {
  const auto open = Load({});
  const auto policy = Load({.admin_place = "the port of --admin-port"});
  for (size_t i = 0; i < kNumApis; ++i) {
    const auto api = static_cast<Api>(i);
    const bool is_public = std::find(std::begin(kAdministration), std::end(kAdministration), api) ==
                           std::end(kAdministration);
    for (const Entrance entrance : {Entrance::kHttp, Entrance::kGrpc}) {
      EXPECT_TRUE(open->Admit({.entrance = entrance, .headers = kNone}, api).ok());
      const Admission admission = policy->Admit({.entrance = entrance, .headers = kNone}, api);
      EXPECT_EQ(admission.ok(), is_public) << RowOf(api).name;
      if (is_public) continue;
      EXPECT_EQ(admission.status.code(), StatusCode::kPermissionDenied);
      EXPECT_EQ(admission.status.message(),
                "this API is answered on the port of --admin-port alone");
    }
    for (const Entrance entrance : {Entrance::kAdminPort, Entrance::kAdminSocket})
      EXPECT_TRUE(policy->Admit({.entrance = entrance, .headers = kNone}, api).ok());
  }
}

TEST(AccessPolicy, KeysAndHeadersHoldAtThePortOfAdministrationAndNotAtItsSocket) {
  const std::string file = WriteKeys(R"({"keys": [{"name": "a", "sha256": ")" +
                                     ToHex(HashKey("one")) + R"(", "roles": ["control"]}]})");
  const auto policy = Load({.keys = {.access = file},
                            .restrictions = {.grpc = {"model-repository:word=open"}},
                            .admin_place = "its place"});
  const auto ask = [&](Entrance entrance, const HeaderList& headers) {
    return policy->Admit({.entrance = entrance, .headers = headers}, Api::kModelRepository);
  };
  const HeaderList key = {{"Authorization", "Bearer one"}};
  EXPECT_EQ(ask(Entrance::kAdminPort, kNone).status.code(), StatusCode::kUnauthenticated);
  EXPECT_TRUE(ask(Entrance::kAdminPort, key).lacks_header);
  EXPECT_TRUE(ask(Entrance::kAdminPort, {key[0], {"word", "open"}}).ok());
  EXPECT_TRUE(ask(Entrance::kAdminSocket, kNone).ok());
  EXPECT_EQ(ask(Entrance::kAdminSocket, kNone).client, nullptr);
  EXPECT_EQ(ask(Entrance::kAdminSocket, {{"Authorization", "Bearer two"}}).client, nullptr);
  ASSERT_NE(ask(Entrance::kAdminSocket, key).client, nullptr);
  EXPECT_EQ(ask(Entrance::kAdminSocket, key).client->name, "a");
}

TEST(AccessPolicy, WrongRulesAreRefused) {
  EXPECT_THAT(AccessPolicy::Load({.keys = {.access = "/nowhere"}}).status().message(),
              HasSubstr("/nowhere"));
  const struct {
    RestrictionRules rules;
    const char* text;
  } cases[] = {
      {{.grpc = {"nope:k=v"}},
       "--grpc-restricted-protocol: got 'nope:k=v', unknown restricted protocol 'nope'"},
      {{.http = {"health,nope:k=v"}}, "unknown restricted api 'nope'"},
      {{.http = {"inference:k=v", "health,inference:a=b"}},
       "restricted api 'inference' can not be specified in multiple config groups"},
      {{.grpc = {"health,health:a=b"}},
       "restricted protocol 'health' can not be specified in multiple config groups"},
      {{.http = {"inference:key"}},
       "--http-restricted-api option format is '<config name>:<setting>=<value>'. Got "
       "inference:key"},
      {{.http = {"inference:k="}}, "Got inference:k="},
      {{.http = {":k=v"}}, "Got :k=v"},
      {{.grpc = {"inference:=v"}}, "Got inference:=v"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(AccessPolicy::Load({.restrictions = c.rules}).status().message(),
                HasSubstr(c.text));
  }
}

}  // namespace
}  // namespace inflight::kserve
