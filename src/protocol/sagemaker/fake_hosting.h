// SPDX-License-Identifier: Apache-2.0
// A server of the tests to which models come: it serves what LoadModel names as an identity, and
// says what was asked of it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "protocol/kserve/http/fake_models.h"
#include "protocol/kserve/http/fake_server.h"

namespace inflight::sagemaker {

class FakeHosting : public kserve_http::FakeServer {
 public:
  Status AddRepository(const serving::AddedRepository& added) override {
    calls.push_back("add " + added.root + " " + added.directory + " as " + added.model);
    return add_status;
  }
  void RemoveRepository(const std::string& root) override { calls.push_back("remove " + root); }
  Status LoadModel(const std::string& name, const serving::LoadOverride&) override {
    calls.push_back("load " + name);
    if (load_status.ok()) {
      AddIdentity(name);
      states[name] = "READY";
    }
    return load_status;
  }
  Status UnloadModel(const std::string& name, bool with_steps) override {
    calls.push_back("unload " + name + (with_steps ? " with steps" : ""));
    if (unloads) states[name] = "UNAVAILABLE";
    return Status::Ok();
  }
  std::vector<serving::IndexEntry> Index(bool) const override {
    std::vector<serving::IndexEntry> entries;
    for (const auto& [name, state] : states) entries.push_back({name, "1", state, ""});
    return entries;
  }

  kserve_http::FakeModel& AddIdentity(const std::string& name) {
    return Add("name: \"" + name + R"(" input { name: "INPUT0" data_type: TYPE_INT32 dims: -1 }
               output { name: "OUTPUT0" data_type: TYPE_INT32 dims: -1 })",
               kserve_http::Identity);
  }

  Status add_status, load_status;
  bool unloads = true;  // false: requests that run keep it
  std::vector<std::string> calls;
  std::map<std::string, std::string> states;
};

}  // namespace inflight::sagemaker
