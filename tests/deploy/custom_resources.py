# SPDX-License-Identifier: Apache-2.0
"""Schemas of the custom resources that deploy/ has: the fields that our manifests use, and no others.

They follow, member by member, what these public definitions say of types, bounds and needed fields:
kedacore/keda/config/crd/bases/keda.sh_scaledobjects.yaml, prometheus-operator/prometheus-operator's
example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml,
kubernetes-sigs/gateway-api-inference-extension/config/crd/bases/inference.networking.k8s.io_inferencepools.yaml,
kubernetes-sigs/gateway-api/config/crd/standard/gateway.networking.k8s.io_httproutes.yaml,
kubernetes-sigs/lws/config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml, and
kserve/kserve/config/crd/full/serving.kserve.io_{servingruntimes,inferenceservices}.yaml. Parts that are Kubernetes' own
refer to its schemas.
"""

CORE = "https://kubernetes.io/api/_definitions.json#/$defs/io.k8s."
TEXT = {"type": "string", "minLength": 1}
FLAG = {"type": "boolean"}
PATH = {"type": "string", "pattern": "^/"}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
COUNT = {"type": "integer", "minimum": 0}
NAME = {"type": "string", "minLength": 1, "maxLength": 253}


def ref(name):
    return {"$ref": CORE + name}


def record(needed, **members):
    """An object with these members and no others; `needed` are names between blanks."""
    return {"type": "object", "required": needed.split(), "additionalProperties": False, "properties": members}


def rows(of, least=1, most=None):
    return {"type": "array", "minItems": least, "items": of} | ({"maxItems": most} if most else {})


def resource(api_version, kind, spec):
    return {(api_version, kind): record(
        "apiVersion kind metadata spec", apiVersion={"const": api_version}, kind={"const": kind},
        metadata=ref("apimachinery.pkg.apis.meta.v1.ObjectMeta"), spec=spec,
    )}  # fmt: skip


LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
SELECTOR = record("matchLabels", matchLabels={
    "type": "object", "minProperties": 1, "maxProperties": 64,
    "additionalProperties": {"type": "string", "maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"},
})  # fmt: skip
SECRET_KEY = record("name key", name=NAME, key=TEXT)
FROM_SECRET = record("secret", secret=SECRET_KEY)
CONTAINERS = rows(ref("api.core.v1.Container"))
VOLUMES = rows(ref("api.core.v1.Volume"))

SCALED_OBJECT = record(
    "scaleTargetRef triggers",
    scaleTargetRef=record("name", apiVersion=TEXT, kind=TEXT, name=NAME),
    minReplicaCount=COUNT, maxReplicaCount=COUNT, pollingInterval=COUNT, cooldownPeriod=COUNT,
    advanced=record("", horizontalPodAutoscalerConfig=record(
        "", behavior=ref("api.autoscaling.v2.HorizontalPodAutoscalerBehavior"), name=NAME)),
    triggers=rows(record(
        "type metadata", type={"const": "prometheus"}, name=TEXT, metricType={"enum": ["AverageValue", "Value", "Utilization"]},
        # keda.sh/docs, scalers, "Prometheus": all values are texts.
        metadata=record(
            "serverAddress query threshold", serverAddress={"type": "string", "pattern": "^https?://"}, query=TEXT,
            threshold={"type": "string", "pattern": r"^\d+(\.\d+)?$"}, activationThreshold={"type": "string"},
            ignoreNullValues={"enum": ["true", "false"]}),
    )),
)  # fmt: skip

SERVICE_MONITOR = record(
    "selector endpoints", jobLabel=TEXT, selector=SELECTOR,
    endpoints=rows(record(
        "", port=TEXT, path=TEXT, interval={"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
        scheme={"enum": ["http", "https"]},
        tlsConfig=record("", serverName=TEXT, ca=FROM_SECRET, cert=FROM_SECRET, keySecret=SECRET_KEY),
        authorization=record("credentials", type=TEXT, credentials=SECRET_KEY),
    )),
)  # fmt: skip

NUMBERED = record("number", number=PORT)
INFERENCE_POOL = record(
    "selector targetPorts endpointPickerRef", selector=SELECTOR, targetPorts=rows(NUMBERED, most=8),
    appProtocol={"enum": ["http", "kubernetes.io/h2c"]},
    endpointPickerRef=record(
        "name port", group={"type": "string", "maxLength": 253}, kind=NAME | {"maxLength": 63}, name=NAME, port=NUMBERED,
        failureMode={"enum": ["FailOpen", "FailClose"]}),
)  # fmt: skip

HTTP_ROUTE = record(
    "parentRefs rules", parentRefs=rows(record("name", group=TEXT, kind=TEXT, name=NAME), most=32),
    rules=rows(record(
        "", matches=rows(record("path", path=record(
            "type value", type={"enum": ["Exact", "PathPrefix", "RegularExpression"]}, value=PATH))),
        backendRefs=rows(record("name", group=TEXT, kind=TEXT, name=NAME, port=PORT)),
    ), most=16),
)  # fmt: skip

LEADER_WORKER_SET = record(
    "leaderWorkerTemplate", replicas=COUNT, startupPolicy={"enum": ["LeaderCreated", "LeaderReady"]},
    rolloutStrategy=record("type", type={"const": "RollingUpdate"}, rollingUpdateConfiguration=record(
        "", maxUnavailable={"type": ["integer", "string"]}, maxSurge={"type": ["integer", "string"]})),
    networkConfig=record("", subdomainPolicy={"enum": ["Shared", "UniquePerReplica"]}),
    leaderWorkerTemplate=record(
        "workerTemplate", size={"type": "integer", "minimum": 1},
        restartPolicy={"enum": ["Default", "RecreateGroupOnPodRestart", "None"]},
        leaderTemplate=ref("api.core.v1.PodTemplateSpec"), workerTemplate=ref("api.core.v1.PodTemplateSpec")),
)  # fmt: skip

SERVING_RUNTIME = record(
    "containers", annotations=LABELS, labels=LABELS, multiModel=FLAG,
    supportedModelFormats=rows(record("name", name=TEXT, version=TEXT, autoSelect=FLAG, priority=COUNT | {"minimum": 1})),
    protocolVersions=rows({"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}), containers=CONTAINERS, volumes=VOLUMES,
    nodeSelector=LABELS, tolerations=rows(ref("api.core.v1.Toleration")),
)  # fmt: skip

INFERENCE_SERVICE = record(
    "predictor",
    predictor=record(
        "model", minReplicas=COUNT, maxReplicas=COUNT, timeout=COUNT, scaleMetric=TEXT, scaleTarget=COUNT,
        terminationGracePeriodSeconds=COUNT, automountServiceAccountToken=FLAG, serviceAccountName=NAME,
        securityContext=ref("api.core.v1.PodSecurityContext"),
        model=record(
            "modelFormat", modelFormat=record("name", name=TEXT, version=TEXT), runtime=NAME,
            protocolVersion={"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]},
            storageUri={"type": "string", "pattern": "^(pvc|s3|gs|https|hf|oci)://"},
            args=rows(TEXT), env=rows(ref("api.core.v1.EnvVar")), resources=ref("api.core.v1.ResourceRequirements"))),
)  # fmt: skip

CUSTOM = (
    resource("keda.sh/v1alpha1", "ScaledObject", SCALED_OBJECT)
    | resource("monitoring.coreos.com/v1", "ServiceMonitor", SERVICE_MONITOR)
    | resource("inference.networking.k8s.io/v1", "InferencePool", INFERENCE_POOL)
    | resource("gateway.networking.k8s.io/v1", "HTTPRoute", HTTP_ROUTE)
    | resource("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", LEADER_WORKER_SET)
    | resource("serving.kserve.io/v1alpha1", "ServingRuntime", SERVING_RUNTIME)
    | resource("serving.kserve.io/v1beta1", "InferenceService", INFERENCE_SERVICE)
)
