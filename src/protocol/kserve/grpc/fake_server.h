// SPDX-License-Identifier: Apache-2.0
// A serving::Server for the tests of the front end: models whose requests the test answers itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serving/server/server.h"
#include "serving/testing/fake_shared_gpu.h"

namespace inflight::kserve_grpc {

// A request that reached a model, with the way back to its client.
struct ReceivedRequest {
  serving::Request request;
  serving::ResponseHandler handler;

  // Responds as the model would: names filled in.
  void Respond(serving::Response response) const {
    response.model_name = request.model_name;
    response.model_version = "1";
    response.id = request.id;
    handler(std::move(response));
  }
  void RespondText(const std::string& text, bool is_final) const {
    const std::string strings[] = {text};
    serving::Response response{.is_final = is_final};
    response.outputs.push_back(serving::Tensor::FromStrings("text_output", {1}, strings));
    Respond(std::move(response));
  }
  void Complete() const { Respond({.is_final = true}); }
  void Fail(Status status, bool is_final = true) const {
    Respond({.status = std::move(status), .is_final = is_final});
  }
};

class FakeModel final : public serving::Model {
 public:
  FakeModel(::inference::ModelConfig config, std::string version)
      : Model(std::move(config), std::move(version)) {}

  void Infer(serving::Request request, serving::ResponseHandler handler) override {
    if (at_once) return at_once({std::move(request), std::move(handler)});
    std::lock_guard lock(mutex_);
    received_.push_back({std::move(request), std::move(handler)});
    arrived_.notify_all();
  }

  // A decoupled model that answers once unless asked to stream, as the LLM models do.
  bool answers_once = false;
  bool allows_single_response_calls() const override { return answers_once || !decoupled(); }

  bool can_wait = false;
  bool waits_for_clients() const override { return can_wait; }

  // Answers within Infer.
  std::function<void(const ReceivedRequest&)> at_once;

  // The next request; fails the test's wait after ten seconds.
  std::optional<ReceivedRequest> Take() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(10), [this] { return !received_.empty(); })) {
      return std::nullopt;
    }
    ReceivedRequest next = std::move(received_.front());
    received_.pop_front();
    return next;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<ReceivedRequest> received_;
};

class FakeServer final : public serving::Server {
 public:
  FakeServer() {
    metadata_.version = "2.73.0";
    metadata_.extensions = {"statistics", "parameters"};
  }

  FakeModel& AddModel(const std::string& name, bool is_decoupled,
                      const std::string& version = "1") {
    ::inference::ModelConfig config;
    config.set_name(name);
    config.set_backend("fake");
    config.set_max_batch_size(8);
    auto& input = *config.add_input();
    input.set_name("text_input");
    input.set_data_type(::inference::TYPE_STRING);
    input.add_dims(-1);
    auto& output = *config.add_output();
    output.set_name("text_output");
    output.set_data_type(::inference::TYPE_STRING);
    output.add_dims(1);
    config.mutable_model_transaction_policy()->set_decoupled(is_decoupled);
    models_.push_back(std::make_shared<FakeModel>(std::move(config), version));
    return static_cast<FakeModel&>(*models_.back());
  }

  void set_ready(bool is_ready) { is_ready_ = is_ready; }

  const serving::ServerMetadata& metadata() const override { return metadata_; }
  bool live() const override { return true; }
  bool ready() const override { return is_ready_; }

  Result<std::shared_ptr<serving::Model>> FindModel(std::string_view name,
                                                    std::string_view version) const override {
    if (version == "x") return InvalidArgument("version x");
    for (const auto& model : models_) {
      if (model->name() == name && (version.empty() || model->version() == version)) return model;
    }
    return NotFound("Request for unknown model: '" + std::string(name) + "' is not found");
  }

  std::vector<serving::IndexEntry> Index(bool) const override {
    std::vector<serving::IndexEntry> entries;
    for (const auto& model : models_) {
      entries.push_back({.name = model->name(), .version = model->version(), .state = "READY"});
    }
    return entries;
  }
  std::vector<std::shared_ptr<serving::Model>> models() const override { return models_; }
  std::vector<serving::ExecutorGauges> executor_gauges(bool) const override { return {}; }

  void Infer(std::shared_ptr<serving::Model> model, serving::Request request,
             serving::ResponseHandler handler) override {
    model->Infer(std::move(request), std::move(handler));
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

 private:
  serving::FakeSharedGpu gpu_;
  serving::SharedMemory shared_memory_{{.clients_may_register = true, .prefixes = {}},
                                       gpu_.Opener()};
  serving::Tracer tracer_;
  serving::ServerMetadata metadata_;
  std::vector<std::shared_ptr<serving::Model>> models_;
  bool is_exiting_ = false;
  bool is_ready_ = true;
};

}  // namespace inflight::kserve_grpc
