// SPDX-License-Identifier: Apache-2.0
#include "serve_options.h"

#include <limits>

#include "access_options.h"
#include "cog_options.h"
#include "model_options.h"
#include "openai_options.h"
#include "serve_upstream_flags.h"
#include "shadow_of.h"
#include "tls_options.h"
#include "trace_options.h"

namespace inflight::tool {
namespace {

using config::AtLeast;
using config::OneOf;
using config::Range;
using config::Switch;
using Schema = config::Schema<ServeOptions>;

void AddModels(Schema& schema) {
  schema.Section("Models");
  schema.Add(
      "model", [](ServeOptions& o) -> auto& { return o.model; },
      "DIR, as an option: a model's directory, a GGUF file, or ORG/NAME of the hub.");
  schema.Alias("-m", "model");
  AddDownload(schema, [](ServeOptions& o) -> auto& { return o.download; });
  schema.Add(
      "model_repository", [](ServeOptions& o) -> auto& { return o.server.model_repositories; },
      "Model repository of Triton's layout: a folder, or an address s3://, gs:// or as://.");
  schema.Alias("model_store", "model_repository");
  schema.Add(
      "remote_cache_dir", [](ServeOptions& o) -> auto& { return o.server.remote.cache_dir; },
      "Folder for copies of objects in stores, of its owner alone; empty is "
      "$XDG_CACHE_HOME/inflight/objects or ~/.cache/inflight/objects.");
  schema.Add(
      "lora_modules", [](ServeOptions& o) -> auto& { return o.lora_modules; },
      "Adapter (LoRA) of the models by name, NAME=FOLDER, as peft saves it; requests choose it by "
      "the parameter lora_name.");
  schema.Add(
      "lora_dir", [](ServeOptions& o) -> auto& { return o.lora_dir; },
      "Folder of such folders: each is an adapter under its own name, also one that comes later.");
  schema.Add(
      "model_namespacing", [](ServeOptions& o) -> auto& { return o.server.model_namespacing; },
      "Each model repository is a namespace: its models may have names that others have.");
  schema.Add(
      "id", [](ServeOptions& o) -> auto& { return o.server.server_id; },
      "Server name in metadata.");
  schema.Add(
      "exit_on_error", [](ServeOptions& o) -> auto& { return o.server.exit_on_error; },
      "End the start when a model fails to load.");
  schema.Add(
      "strict_readiness", [](ServeOptions& o) -> auto& { return o.server.strict_readiness; },
      "Ready only when every model is.");
  schema.Add(
      "model_control_mode", [](ServeOptions& o) -> auto& { return o.model_control_mode; },
      "Who loads models while the server runs: nobody, a watch of the repositories, or requests.",
      OneOf({"none", "poll", "explicit"}));
  schema.Add(
      "load_model", [](ServeOptions& o) -> auto& { return o.server.load_models; },
      "Model loaded at start in mode explicit; '*' alone is all of them.");
  schema.Add(
      "repository_poll_secs", [](ServeOptions& o) -> auto& { return o.server.poll_secs; },
      "Seconds between two looks at the repositories in mode poll.", Range(1, 86400));
  schema.Add(
      "disable_auto_complete_config",
      [](ServeOptions& o) -> auto& { return o.disable_auto_complete_config; },
      "Configurations are complete as they are: no backend by the model's name, no tensors by the "
      "backend.",
      Switch());
  schema.Add(
      "strict_model_config", [](ServeOptions& o) -> auto& { return o.strict_model_config; },
      "Deprecated: true is --disable-auto-complete-config.");
  schema.Add(
      "model_config_name", [](ServeOptions& o) -> auto& { return o.server.model_config_name; },
      "Models are configured by configs/<name>.pbtxt where they have it, else by config.pbtxt.");
  schema.Add(
      "ranks", [](ServeOptions& o) -> auto& { return o.ranks; },
      "What a process does that MPI, Slurm, torchrun or a LeaderWorkerSet started as a rank above "
      "0: wait for rank 0 to serve, and compute a part of models that run on as many ranks "
      "(--tensor-parallel-size, --pipeline-parallel-size); or serve too, on ports of its own.",
      OneOf({"wait", "serve"}));
  schema.Add(
      "model_load_thread_count",
      [](ServeOptions& o) -> auto& { return o.server.model_load_threads; },
      "Models that are loaded at a time, where they do not use each other; the engines of LLMs, "
      "which share a device's memory, one after another.",
      Range(1, 128));
  schema.Add(
      "model_load_retry_count",
      [](ServeOptions& o) -> auto& { return o.server.model_load_retries; },
      "How often the load of a model version that failed is tried again.", Range(0, 1000));
}

void AddKvEvents(Schema& schema) {
  schema.Add(
      "kv_events_endpoint",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.kv_events.endpoint; },
      "Tell prefix-aware routers over ZeroMQ which blocks are held: address of a PUB socket, as "
      "tcp://127.0.0.1:5557. Subscribers see the tokens of prompts. {model} is the model's name.");
  schema.Add(
      "kv_events_replay_endpoint",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.kv_events.replay_endpoint; },
      "The address of a ROUTER socket that sends events again to who missed some.");
  schema.Add(
      "kv_events_topic",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.kv_events.topic; },
      "The first frame of each message of events, as kv@10.0.0.7:8000@{model}.");
  schema.Add(
      "kv_events_buffer_steps",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.kv_events.buffer_steps; },
      "Batches of events that are kept to be sent again.", Range(1, 1000000));
}

void AddLimits(Schema& schema) {
  schema.Add(
      "max_batch_size",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.max_batch_size; },
      "Sequences in one step; may only lower the engine's.", AtLeast(1));
  schema.Add(
      "max_num_tokens",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.max_num_tokens; },
      "Packed tokens in one step; may only lower the engine's.", AtLeast(1));
  schema.Add(
      "max_seq_len", [](ServeOptions& o) -> auto& { return o.server.open.executor.max_seq_len; },
      "Tokens of a sequence, its prompt and its answer; may only lower the model's.", AtLeast(1));
  schema.Alias("max_model_len", "max_seq_len");
  schema.Alias("ctx_size", "max_seq_len");
  schema.Alias("-c", "max_seq_len");
  schema.Add(
      "threads", [](ServeOptions& o) -> auto& { return o.server.open.num_threads; },
      "CPU threads that compute; 0 is the usable cores.", Range(0, 1024));
  schema.Alias("-t", "threads");
  schema.Add(
      "max_kv_tokens",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.max_kv_tokens; },
      "Cap on tokens in the KV cache.", AtLeast(1));
}

void AddEngine(Schema& schema) {
  schema.Section("Engine");
  AddDevice(schema, [](ServeOptions& o) -> auto& { return o.server.open.device; });
  AddDType(
      schema, [](ServeOptions& o) -> auto& { return o.server.open.dtype; }, kComputedIn);
  AddQuantization(schema, [](ServeOptions& o) -> auto& { return o.quantization; });
  AddLimits(schema);
  schema.Add(
      "kv_cache_free_memory_fraction",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.kv_cache_free_memory_fraction; },
      "Share of free memory for the KV cache.", Range(0.001, 0.999));
  schema.Add(
      "kv_block_size", [](ServeOptions& o) -> auto& { return o.server.open.executor.block_size; },
      "Tokens per KV block: 16, 32, 64 or 128.", Range(16, 128));
  schema.Add(
      "enable_prefix_reuse",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.enable_prefix_reuse; },
      "Share KV blocks of equal prompt beginnings.");
  schema.Add(
      "enable_chunked_prefill",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.enable_chunked_prefill; },
      "Spread long prompts over steps.");
  schema.Add(
      "scheduler_policy",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.scheduler_policy; },
      "Who may hold KV blocks: as many requests as run now, pausing the last when memory runs out; "
      "only those that fit at full length; batches that nobody joins.",
      OneOf({"max_utilization", "guaranteed_no_evict", "static_batch"}));
  schema.Add(
      "chunking_policy",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.chunking_policy; },
      "Who gets the prompt tokens of a step: the first all it can take, or each a block in turn.",
      OneOf({"first_come_first_served", "equal_progress"}));
  schema.Add(
      "step_time_goal_ms",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.step_time_goal_ms; },
      "The prompt share of a step is sized to meet this.", Range(1, 60000));
  schema.Add(
      "max_queue_size",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.max_queue_size; },
      "Waiting requests before new ones are refused; 0 is the queue's own size, 4096.", AtLeast(0));
  schema.Add(
      "max_queue_delay_us",
      [](ServeOptions& o) -> auto& { return o.server.open.executor.max_queue_delay_us; },
      "Microseconds that a request may wait for others to start with it.", Range(0, 3.6e9));
  AddRanks(schema, [](ServeOptions& o) -> auto& { return o.server.open; });
  schema.Alias("-tp", "tensor_parallel_size");
  schema.Alias("-pp", "pipeline_parallel_size");
  AddEnableExpertParallel(schema, &ServeOptions::enable_expert_parallel);
  AddDeterministic(schema, [](ServeOptions& o) -> auto& { return o.server.open.executor; });
  AddGpuWeights(schema, [](ServeOptions& o) -> auto& { return o.server.open.executor; });
  AddSpeculation(
      schema, [](ServeOptions& o) -> auto& { return o.server.open.executor; },
      [](ServeOptions& o) -> auto& { return o.server.open.draft_model; });
  AddSleepMode(schema, [](ServeOptions& o) -> auto& { return o.server.open.executor; });
  schema.Add(
      "stop_words", [](ServeOptions& o) -> auto& { return o.server.stop_words; },
      "What stop words of ensembles and BLS match: the text, or the tokens that they are cut into; "
      "by release: tokens in repositories written for one of upstream's (text in BLS from 0.19), "
      "else text.",
      OneOf({"release", "text", "tokens"}));
  schema.Add(
      "prompt_table_dir", [](ServeOptions& o) -> auto& { return o.prompt_table_dir; },
      "Directory of prompt tables, NAME.npy or NAME.safetensors, which requests name by their "
      "parameter prompt_task; read again when they change.");
}

void AddHttp(Schema& schema) {
  schema.Section("HTTP");
  schema.Add(
      "allow_http", [](ServeOptions& o) -> auto& { return o.allow_http; }, "Serve HTTP.");
  schema.Add(
      "http_address", [](ServeOptions& o) -> auto& { return o.http.address; },
      "Address to listen on; 0.0.0.0 by default where the program is called tritonserver.");
  schema.Add(
      "http_port", [](ServeOptions& o) -> auto& { return o.http.port; },
      "Port; 0 picks a free one.", Range(0, 65535));
  schema.Alias("host", "http_address");
  schema.Alias("port", "http_port");
  schema.Alias("-p", "http_port");
  schema.Add(
      "http_thread_count", [](ServeOptions& o) -> auto& { return o.http.threads; },
      "I/O threads; 0 is 1 to 4 by cores.", Range(0, 128));
  schema.Add(
      "http_max_input_size", [](ServeOptions& o) -> auto& { return o.endpoints.max_input_bytes; },
      "Largest request body, in bytes.", AtLeast(1));
  schema.Add(
      "strict_parameters", [](ServeOptions& o) -> auto& { return o.endpoints.strict_parameters; },
      "Answer 400 to members of generate that an LLM has no use for, in place of the header "
      "Inflight-Warning.",
      Switch());
  schema.Add(
      "http_max_connections", [](ServeOptions& o) -> auto& { return o.http.max_connections; },
      "Connections at a time; a further one takes the place of one that waits for its client, of "
      "the "
      "client that has most, or gets 503.",
      Range(1, 1 << 20));
  schema.Add(
      "http_max_stream_buffer_size",
      [](ServeOptions& o) -> auto& { return o.http.max_stream_buffer_bytes; },
      "Bytes of a stream that may wait behind one event for a client that reads slowly; with more "
      "it is disconnected.",
      AtLeast(1));
  schema.Add(
      "http_header_timeout_ms", [](ServeOptions& o) -> auto& { return o.http.header_timeout; },
      "Milliseconds from a request's first byte to the end of its head.", Range(1, 86400000));
  schema.Add(
      "http_body_timeout_ms", [](ServeOptions& o) -> auto& { return o.http.body_timeout; },
      "Milliseconds: a body comes at 64 KiB a second over any time of this length, or the "
      "connection is closed.",
      Range(1, 86400000));
  schema.Add(
      "http_idle_timeout_ms", [](ServeOptions& o) -> auto& { return o.http.idle_timeout; },
      "Milliseconds that a connection may be without a request; 0 is for ever.",
      Range(0, 86400000));
  schema.Add(
      "http_write_timeout_ms", [](ServeOptions& o) -> auto& { return o.http.write_timeout; },
      "Milliseconds that a client may take none of what is written to it.", Range(1, 86400000));
  schema.Add(
      "reuse_http_port", [](ServeOptions& o) -> auto& { return o.http.reuse_port; },
      "Share the port with other servers.");
  AddTlsOptions(schema, "http", [](ServeOptions& o) -> auto& { return o.http.tls; });
  schema.Add(
      "http_allowed_host", [](ServeOptions& o) -> auto& { return o.http_allowed_host; },
      "Name by which clients call the server, and whose web pages may; of ports of 127.0.0.1, and "
      "where it is given, other names than localhost are refused.");
  schema.Add(
      "cors_origin", [](ServeOptions& o) -> auto& { return o.cors_origin; },
      "Origin whose web pages may call the server and read its answers, such as "
      "https://ui.example.com; repeatable. * is any, whose pages may not change the server. "
      "Without it a page of another origin reads nothing.");
  schema.Add(
      "allow_page", [](ServeOptions& o) -> auto& { return o.allow_page; },
      "The HTTP port has a page for browsers at / and a description of its routes at /docs and "
      "/openapi.json; the page needs --allow-openai=true.");
  schema.Add(
      "http_restricted_api", [](ServeOptions& o) -> auto& { return o.access.restrictions.http; },
      "APIs that need a header: <api>[,<api>...]:<header>=<value>; over gRPC, unless "
      "--grpc-restricted-protocol says another, the metadata triton-grpc-protocol-<header>.");
  schema.Add(
      "http_header_forward_pattern",
      [](ServeOptions& o) -> auto& { return o.http_header_forward_pattern; },
      "Headers whose names it matches, anywhere and in any case, go to the model as parameters; a "
      "regular expression.");
}

void AddGrpc(Schema& schema) {
  schema.Section("gRPC");
  schema.Add(
      "allow_grpc", [](ServeOptions& o) -> auto& { return o.allow_grpc; }, "Serve gRPC.");
  schema.Add(
      "grpc_address", [](ServeOptions& o) -> auto& { return o.grpc.address; },
      "Address to listen on; 0.0.0.0 by default where the program is called tritonserver.");
  schema.Add(
      "grpc_port", [](ServeOptions& o) -> auto& { return o.grpc.port; },
      "Port; 0 picks a free one.", Range(0, 65535));
  schema.Add(
      "reuse_grpc_port", [](ServeOptions& o) -> auto& { return o.grpc.reuse_port; },
      "Share the port with other servers.");
  schema.Add(
      "grpc_keepalive_time", [](ServeOptions& o) -> auto& { return o.grpc.keepalive_time_ms; },
      "Milliseconds without traffic before a keepalive ping.", AtLeast(1));
  schema.Add(
      "grpc_keepalive_timeout",
      [](ServeOptions& o) -> auto& { return o.grpc.keepalive_timeout_ms; },
      "Milliseconds to wait for its answer.", AtLeast(1));
  schema.Add(
      "grpc_keepalive_permit_without_calls",
      [](ServeOptions& o) -> auto& { return o.grpc.keepalive_permit_without_calls; },
      "Ping idle connections too.");
  schema.Add(
      "grpc_http2_max_pings_without_data",
      [](ServeOptions& o) -> auto& { return o.grpc.http2_max_pings_without_data; },
      "Pings without data in between; 0 is no limit.", AtLeast(0));
  schema.Add(
      "grpc_http2_min_recv_ping_interval_without_data",
      [](ServeOptions& o) -> auto& { return o.grpc.http2_min_recv_ping_interval_without_data_ms; },
      "Milliseconds that clients must leave between pings.", AtLeast(0));
  schema.Add(
      "grpc_http2_max_ping_strikes",
      [](ServeOptions& o) -> auto& { return o.grpc.http2_max_ping_strikes; },
      "Bad pings before a connection is closed; 0 is no limit.", AtLeast(0));
  schema.Add(
      "grpc_max_connection_age",
      [](ServeOptions& o) -> auto& { return o.grpc.max_connection_age_ms; },
      "Milliseconds a connection may live.", AtLeast(1));
  schema.Add(
      "grpc_max_connection_age_grace",
      [](ServeOptions& o) -> auto& { return o.grpc.max_connection_age_grace_ms; },
      "Milliseconds after that for its calls to end.", AtLeast(0));
  schema.Add(
      "grpc_max_input_size", [](ServeOptions& o) -> auto& { return o.grpc.max_message_bytes; },
      "Largest request message, in bytes, unpacked.", AtLeast(1));
  schema.Add(
      "grpc_max_connections", [](ServeOptions& o) -> auto& { return o.grpc.max_connections; },
      "Connections at a time; a further one takes the place of one of the client that has most, "
      "where that has more than its own, or is closed.",
      Range(1, 1 << 20));
  schema.Add(
      "grpc_max_calls", [](ServeOptions& o) -> auto& { return o.grpc.max_calls; },
      "Inference calls, streams among them, at a time; further ones are UNAVAILABLE.", AtLeast(1));
  schema.Add(
      "grpc_max_concurrent_streams",
      [](ServeOptions& o) -> auto& { return o.grpc.max_concurrent_streams; },
      "Calls of one connection at a time; clients keep further ones waiting.", AtLeast(1));
  schema.Add(
      "grpc_max_response_pool_size",
      [](ServeOptions& o) -> auto& { return o.grpc.max_pending_responses; },
      "Responses of a stream that may wait for a client that reads slowly; with more its model "
      "waits, of an LLM the stream's requests alone, and what another ensemble runs is cancelled "
      "with the stream (16384 beyond).",
      AtLeast(1));
  schema.Add(
      "grpc_reflection", [](ServeOptions& o) -> auto& { return o.grpc.with_reflection; },
      "Describe services and messages to clients that ask, such as grpcurl: server reflection, v1 "
      "and v1alpha.");
  schema.Add(
      "grpc_infer_response_compression_level",
      [](ServeOptions& o) -> auto& { return o.grpc.response_compression; },
      "How far responses to inference are compressed, by an algorithm that the client takes.",
      OneOf({"none", "low", "medium", "high"}));
  AddTlsOptions(schema, "grpc", [](ServeOptions& o) -> auto& { return o.grpc.tls; });
  schema.Add(
      "grpc_restricted_protocol",
      [](ServeOptions& o) -> auto& { return o.access.restrictions.grpc; },
      "APIs that need the metadata triton-grpc-protocol-<header>: "
      "<api>[,<api>...]:<header>=<value>; over HTTP, unless --http-restricted-api says another, "
      "the header.");
  schema.Add(
      "grpc_header_forward_pattern",
      [](ServeOptions& o) -> auto& { return o.grpc_header_forward_pattern; },
      "Metadata whose names it matches, anywhere and in any case, go to the model as parameters; a "
      "regular expression.");
}

void AddMetrics(Schema& schema) {
  schema.Section("Metrics");
  schema.Add(
      "allow_metrics", [](ServeOptions& o) -> auto& { return o.allow_metrics; },
      "Serve the metrics page.");
  schema.Add(
      "metrics_address", [](ServeOptions& o) -> auto& { return o.metrics.listener.address; },
      "Address; empty is the HTTP one.");
  schema.Add(
      "metrics_port", [](ServeOptions& o) -> auto& { return o.metrics.listener.port; },
      "Port; 0 picks a free one.", Range(0, 65535));
  AddTlsOptions(schema, "metrics", [](ServeOptions& o) -> auto& { return o.metrics.listener.tls; });
  schema.Add(
      "metrics_failure_reasons",
      [](ServeOptions& o) -> auto& { return o.metrics.page.with_failure_reasons; },
      "Count failed requests by reason; false gives one series a model, as before 24.07.");
  schema.Add(
      "http_metrics", [](ServeOptions& o) -> auto& { return o.http_metrics; },
      "The HTTP port has the page too, at /metrics, for scrapers that know one port of a server.");
  schema.Add(
      "metrics_vllm_names", [](ServeOptions& o) -> auto& { return o.metrics.page.with_vllm_names; },
      "The page has load, times, tokens and adapters also under the names that routers and "
      "dashboards read of vLLM.");
  schema.Alias("vllm_metrics", "metrics_vllm_names");
  schema.Add(
      "metrics_config", [](ServeOptions& o) -> auto& { return o.metrics_config; },
      "counter_latencies, histogram_latencies, summary_latencies=<true or false>; "
      "summary_quantiles=<quantile>:<error>,...");
  schema.Add(
      "metrics_interval_ms", [](ServeOptions& o) -> auto& { return o.metrics.machine.interval; },
      "Milliseconds between readings of the machine's CPU and GPU gauges.", Range(1, 86400000));
  schema.Add(
      "allow_gpu_metrics", [](ServeOptions& o) -> auto& { return o.metrics.machine.with_gpus; },
      "Gauges of the GPUs, where there are any: nv_gpu_*, nv_energy_consumption.");
  schema.Add(
      "allow_cpu_metrics", [](ServeOptions& o) -> auto& { return o.metrics.machine.with_cpu; },
      "Gauges of the machine: nv_cpu_*.");
}

void AddSageMaker(Schema& schema) {
  schema.Section("SageMaker");
  schema.Add(
      "allow_sagemaker", [](ServeOptions& o) -> auto& { return o.allow_sagemaker; },
      "Serve the routes of SageMaker's containers.");
  schema.Add(
      "sagemaker_port", [](ServeOptions& o) -> auto& { return o.sagemaker.port; },
      "Port; 0 picks a free one.", Range(0, 65535));
  schema.Add(
      "sagemaker_safe_port_range",
      [](ServeOptions& o) -> auto& { return o.sagemaker_safe_port_range; },
      "<low>-<high>: the port must lie inside.");
  schema.Add(
      "sagemaker_thread_count", [](ServeOptions& o) -> auto& { return o.sagemaker.threads; },
      "I/O threads; 0 is 1 to 4 by cores.", Range(0, 128));
}

void AddVertexAi(Schema& schema) {
  schema.Section("Vertex AI");
  schema.Add(
      "allow_vertex_ai", [](ServeOptions& o) -> auto& { return o.allow_vertex_ai; },
      "Serve the routes AIP_HEALTH_ROUTE and AIP_PREDICT_ROUTE; true where the environment has "
      "AIP_MODE=PREDICTION, which makes the defaults of --allow-http and --allow-grpc false.");
  schema.Add(
      "vertex_ai_port", [](ServeOptions& o) -> auto& { return o.vertex_ai.port; },
      "Port; AIP_HTTP_PORT where the environment has it; 0 picks a free one.", Range(0, 65535));
  schema.Add(
      "vertex_ai_thread_count", [](ServeOptions& o) -> auto& { return o.vertex_ai.threads; },
      "I/O threads; 0 is 1 to 4 by cores.", Range(0, 128));
  schema.Add(
      "vertex_ai_default_model", [](ServeOptions& o) -> auto& { return o.vertex_ai_default_model; },
      "Model of predictions; needed where more than one is loaded.");
}

// What a server keeps and tells of its work, so that others can repeat it.
void AddRecords(Schema& schema) {
  schema.Add(
      "record", [](ServeOptions& o) -> auto& { return o.server.recording.file; },
      "Journal of the requests, cancels and steps of an LLM, for `inflight replay`; FILE.1 has "
      "what was before it. {model} is the model's name and version.");
  schema.Add(
      "record_byte_size", [](ServeOptions& o) -> auto& { return o.server.recording.file_bytes; },
      "Bytes of each of the two files of --record, at most.", AtLeast(1 << 16));
  schema.Add(
      "record_prompts", [](ServeOptions& o) -> auto& { return o.server.recording.keeps_prompts; },
      "The journal of --record has the tokens of prompts, without which nothing can be repeated, "
      "in place of hashes.",
      Switch());
  schema.Add(
      "receipts", [](ServeOptions& o) -> auto& { return o.server.issuing.issues; },
      "Answers of LLMs carry a receipt that `inflight verify` computes again: hashes of weights, "
      "kernels and parameters, the prompt's tokens and the answer's. Implies --deterministic; "
      "every file of a model is read once more when it is loaded.",
      Switch());
  schema.Add(
      "receipt_hashes", [](ServeOptions& o) -> auto& { return o.hashes_prompts; },
      "The receipts of --receipts have a hash in place of the prompt's tokens, which are then to "
      "be given to `inflight verify`.",
      Switch());
}

void AddOperation(Schema& schema) {
  schema.Section("Operation");
  schema.Add(
      "exit_timeout_secs", [](ServeOptions& o) -> auto& { return o.exit_timeout_secs; },
      "Seconds that running requests get after SIGTERM.", Range(0, 86400));
  schema.Add(
      "exit_delay_secs", [](ServeOptions& o) -> auto& { return o.exit_delay_secs; },
      "Seconds before those in which a server that got SIGTERM is not ready and takes requests all "
      "the same, until load balancers have noticed. A second signal ends them.",
      Range(0, 86400));
  schema.Add(
      "log_verbose", [](ServeOptions& o) -> auto& { return o.log_verbose; },
      "From 1 on details are logged.",
      Range(std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
  schema.Add(
      "log_info", [](ServeOptions& o) -> auto& { return o.log_info; }, "Log information.");
  schema.Add(
      "log_warning", [](ServeOptions& o) -> auto& { return o.log_warning; }, "Log warnings.");
  schema.Add(
      "log_error", [](ServeOptions& o) -> auto& { return o.log_error; }, "Log errors.");
  schema.Add(
      "log_format", [](ServeOptions& o) -> auto& { return o.log_format; },
      "Lines as of glog, or with a time as of ISO 8601.", config::OneOf({"default", "ISO8601"}));
  schema.Add(
      "log_file", [](ServeOptions& o) -> auto& { return o.log_file; },
      "File to whose end the log is written; without it information goes to standard output, "
      "warnings and errors to standard error.");
  schema.Add(
      "request_log", [](ServeOptions& o) -> auto& { return o.request_log; },
      "A line of the log for each request: method, path, model, status, tokens, times, client; off "
      "by default where the program is called tritonserver.");
  AddRecords(schema);
  schema.Add(
      "port_file", [](ServeOptions& o) -> auto& { return o.port_file; },
      "JSON file that gets the ports in use once the server is ready.");
  schema.Add(
      "cache_config", [](ServeOptions& o) -> auto& { return o.cache_config; },
      "local,size=<bytes>: keep responses of models that say response_cache, within this size.");
  schema.Add(
      "response_cache_byte_size",
      [](ServeOptions& o) -> auto& { return o.response_cache_byte_size; },
      "Deprecated: --cache-config local,size=<bytes>.", AtLeast(0));
  schema.Add(
      "request_memory_byte_size",
      [](ServeOptions& o) -> auto& { return o.request_memory_byte_size; },
      "Bytes that clients may make the server hold: bodies, what they unpack to, answers that wait "
      "for their reader. Beyond four fifths the largest connection that waits for its client is "
      "closed and large requests get 503 or RESOURCE_EXHAUSTED; 0 is a quarter of the memory, 256 "
      "MiB to 8 GiB.",
      AtLeast(0));
  schema.Add(
      "rate_limit", [](ServeOptions& o) -> auto& { return o.rate_limit; },
      "Whether instances wait for the resources that rate_limiter of their group names; it is of "
      "models that run on instances.",
      config::OneOf({"execution_count", "off"}));
  schema.Add(
      "rate_limit_resource", [](ServeOptions& o) -> auto& { return o.rate_limit_resource; },
      "<name>:<count>[:0]: how much of a resource there is; else as much as the most that an "
      "instance "
      "asks for.");
  schema.Add(
      "backend_config", [](ServeOptions& o) -> auto& { return o.backend_config; },
      "<backend>,<setting>=<value>: shown in the table of backends; nothing here reads one.");
}

void AddSharedMemory(Schema& schema) {
  schema.Add(
      "allow_client_shm",
      [](ServeOptions& o) -> auto& { return o.server.shared_memory.clients_may_register; },
      "Clients may register shared memory and pass tensors in it.");
  schema.Add(
      "shared_memory_prefix",
      [](ServeOptions& o) -> auto& { return o.server.shared_memory.prefixes; },
      "What names of POSIX objects that clients register begin with; repeatable. Without it they "
      "may have any name.");
  schema.Add(
      "shared_memory_foreign_objects",
      [](ServeOptions& o) -> auto& { return o.server.shared_memory.foreign_objects; },
      "Clients may register objects of other users than the server runs as.");
  schema.Add(
      "shared_memory_remote_peers",
      [](ServeOptions& o) -> auto& { return o.server.shared_memory.remote_peers; },
      "Clients whose address is not a loopback one may register shared memory, too.");
  schema.Add(
      "shared_memory_client_regions",
      [](ServeOptions& o) -> auto& { return o.server.shared_memory.max_client_regions; },
      "Regions that one client, by its key or its address, may have registered; all together have "
      "1024.",
      AtLeast(1));
  schema.Add(
      "shared_memory_client_bytes",
      [](ServeOptions& o) -> auto& { return o.server.shared_memory.max_client_bytes; },
      "Bytes of the objects behind the regions of one client, by its key or its address.",
      AtLeast(1));
}

}  // namespace

Schema ServeSchema() {
  Schema schema;
  AddModels(schema);
  AddEngine(schema);
  AddKvEvents(schema);
  AddAccessOptions(schema);
  AddHttp(schema);
  AddGrpc(schema);
  AddMetrics(schema);
  AddSageMaker(schema);
  AddVertexAi(schema);
  AddCogOptions(schema);
  AddOpenAiOptions(schema);
  AddShadowOf(schema);
  AddTracing(schema);
  AddOperation(schema);
  AddSharedMemory(schema);
  AddUpstreamServeFlags(schema);
  schema.Common({"model", "model_repository", "device", "dtype", "max_batch_size", "max_seq_len",
                 "threads", "kv_cache_free_memory_fraction", "tensor_parallel_size", "api_key",
                 "api_key_file", "http_address", "http_port", "served_model_name", "request_log"});
  return schema;
}

}  // namespace inflight::tool
