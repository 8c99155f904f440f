// SPDX-License-Identifier: Apache-2.0
// A server of the tests: models from config.pbtxt text, and a function in place of each model.
#pragma once

#include <google/protobuf/text_format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "serving/core/validate.h"
#include "serving/server/server.h"
#include "serving/testing/fake_shared_gpu.h"

namespace inflight::kserve_http {

using Behaviour = std::function<void(serving::Request, serving::ResponseHandler)>;

inline ::inference::ModelConfig ConfigFromText(const std::string& text) {
  ::inference::ModelConfig config;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

class FakeModel : public serving::Model {
 public:
  FakeModel(::inference::ModelConfig config, Behaviour behaviour)
      : Model(std::move(config), "1"), behaviour_(std::move(behaviour)) {}

  bool ready() const override { return is_ready; }
  std::shared_ptr<const serving::TextModel> text() const override { return text_model; }
  void Infer(serving::Request request, serving::ResponseHandler handler) override {
    behaviour_(std::move(request), std::move(handler));
  }

  bool is_ready = true;
  std::shared_ptr<const serving::TextModel> text_model;

 private:
  Behaviour behaviour_;
};

class FakeServer : public serving::Server {
 public:
  FakeModel& Add(const std::string& config, Behaviour behaviour = nullptr) {
    auto model = std::make_shared<FakeModel>(ConfigFromText(config), std::move(behaviour));
    models_.push_back(model);
    return *model;
  }

  const serving::ServerMetadata& metadata() const override { return metadata_; }
  bool live() const override { return true; }
  bool ready() const override { return is_ready; }
  Result<std::shared_ptr<serving::Model>> FindModel(std::string_view name,
                                                    std::string_view version) const override {
    const std::string prefix = "Request for unknown model: '" + std::string(name) + "' ";
    for (const auto& model : models_) {
      if (model->name() != name) continue;
      if (version.empty() || version == model->version()) return model;
      return NotFound(prefix + "version " + std::string(version) + " is not found");
    }
    return NotFound(prefix + "is not found");
  }
  std::vector<serving::IndexEntry> Index(bool ready_only) const override {
    std::vector<serving::IndexEntry> entries;
    for (const auto& model : models_) entries.push_back({model->name(), "1", "READY", ""});
    if (!ready_only) entries.push_back({"broken", "1", "UNAVAILABLE", "Internal: no file"});
    return entries;
  }
  std::vector<std::shared_ptr<serving::Model>> models() const override { return models_; }
  std::vector<serving::ExecutorGauges> executor_gauges(bool) const override { return gauges; }
  void Infer(std::shared_ptr<serving::Model> model, serving::Request request,
             serving::ResponseHandler handler) override {
    // Held no longer than the answer takes, or a client that has it would still see them used.
    request.regions.clear();
    Status status = serving::ValidateRequest(model->config(), request);
    if (status.ok()) return model->Infer(std::move(request), std::move(handler));
    handler({.status = std::move(status), .is_final = true});
  }
  Status LoadModel(const std::string&, const serving::LoadOverride&) override {
    return Status::Ok();
  }
  Status UnloadModel(const std::string&, bool) override { return Status::Ok(); }
  Status AddRepository(const serving::AddedRepository&) override { return Status::Ok(); }
  void RemoveRepository(const std::string&) override {}
  void BeginExit() override { is_exiting_ = true; }
  bool exiting() const override { return is_exiting_; }
  serving::SharedMemory& shared_memory() override { return shared_memory_; }
  serving::Tracer& tracer() override { return tracer_; }
  void Shutdown(int64_t) override {}

  bool is_ready = true;
  std::vector<serving::ExecutorGauges> gauges;

 private:
  bool is_exiting_ = false;
  serving::FakeSharedGpu gpu_;
  serving::SharedMemory shared_memory_{{.clients_may_register = true, .prefixes = {}},
                                       gpu_.Opener()};
  serving::Tracer tracer_;
  serving::ServerMetadata metadata_{
      .name = "triton", .version = "2.73.0", .extensions = {"parameters", "statistics"}};
  std::vector<std::shared_ptr<serving::Model>> models_;
};

}  // namespace inflight::kserve_http
