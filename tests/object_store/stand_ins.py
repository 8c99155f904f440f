# SPDX-License-Identifier: Apache-2.0
"""Object stores on loopback that check each signature by the vendors' own code, and fail when they are told to.

S3's signatures are computed by botocore, Azure's by azure-storage-blob, the statements of Google's service accounts are
verified by cryptography. The answers have the form that the vendors' references document.
"""

import abc
import base64
import contextlib
import dataclasses
import hashlib
import html
import http.server
import json
import ssl
import threading
import types
import urllib.parse
from typing import Any

from azure.core.rest import HttpRequest
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

REGION = "eu-north-1"
KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


@dataclasses.dataclass
class Request:
    """What a client sent."""

    method: str
    target: str  # as it came, with the query
    headers: dict[str, str]  # names in small letters
    body: bytes

    @property
    def path(self):
        return urllib.parse.unquote(self.target.split("?")[0])

    @property
    def query(self):
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.target).query, keep_blank_values=True))


@dataclasses.dataclass
class Answer:
    """What it is answered; `cut`: the connection ends after so many bytes of the body, `stalls`: nothing follows them."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    cut: int | None = None
    stalls: bool = False


@dataclasses.dataclass
class Fault:
    """Does `act` to the first `times` answers to requests whose method and target have `method` and `part`."""

    act: Any  # Answer -> Answer
    part: str = ""
    method: str = "GET"
    times: int = 1

    def meets(self, request):
        return self.times > 0 and request.method == self.method and self.part in request.target


def status(code, body=b"", **headers):
    return lambda _: Answer(code, body, {name.replace("_", "-"): value for name, value in headers.items()})


def cut(count):
    return lambda answer: dataclasses.replace(answer, cut=count)


def stall(count):
    return lambda answer: dataclasses.replace(answer, cut=count, stalls=True)


def corrupt(answer):
    return dataclasses.replace(answer, body=bytes([answer.body[0] ^ 1]) + answer.body[1:])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.owner.take(Request(self.command, self.path, headers, body))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if "content-length" not in answer.headers:
            self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(OSError):  # a client that gave up
            self.wfile.write(answer.body[: answer.cut])
            if answer.stalls:
                self.server.owner.closing.wait()
        if answer.cut is not None:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = handle_any  # noqa: N815: the base class asks for these names

    def log_message(self, *_):
        pass


class StandIn(abc.ABC):
    """A store with one bucket, `models`; `objects` are its objects by key."""

    def __init__(self, tls=None):
        self.objects: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.page_size = 1000
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.owner = self
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, request):
        with self._lock:
            self.requests.append(request)
            fault = next((fault for fault in self.faults if fault.meets(request)), None)
            if fault:
                fault.times -= 1
            answer = self.answer(request)
        return fault.act(answer) if fault else answer

    @abc.abstractmethod
    def answer(self, request):
        """What the store answers."""

    def asked(self, part, method="GET"):
        return [request for request in self.requests if part in request.target and request.method == method]

    def put_folder(self, folder, prefix):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.objects[f"{prefix}/{path.relative_to(folder)}"] = path.read_bytes()

    def listing(self, prefix, delimiter, after):
        """(keys, folders, where the next page begins) of one page."""
        keys, folders = [], []
        names = [key for key in sorted(self.objects) if key.startswith(prefix) and key > after]
        for count, key in enumerate(names):
            if count == self.page_size:
                return keys, folders, names[count - 1]
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folder = prefix + rest.split(delimiter)[0] + delimiter
                if folder not in folders:
                    folders.append(folder)
            else:
                keys.append(key)
        return keys, folders, ""

    def content(self, request, key, tag, headers, name="range"):
        """An object, or a range of it, unless the client asks for an older one."""
        body = self.objects[key]
        if request.headers.get("if-match", tag) != tag:
            return self.error(412, "PreconditionFailed", "At least one of the preconditions did not hold.")
        wanted = request.headers.get(name)
        headers = {"etag": tag, **headers}
        if wanted is None:
            return Answer(200, body, headers)
        first, last = (int(text) for text in wanted.removeprefix("bytes=").split("-"))
        part = body[first : last + 1]
        return Answer(206, part, {**headers, "content-range": f"bytes {first}-{first + len(part) - 1}/{len(body)}"})

    def error(self, code, name, message):
        """The answer that says what is wrong; each kind of store has a form of its own."""
        return Answer(code, f"{name}: {message}".encode(), {})


def xml_error(code, name, message, **others):
    more = "".join(f"<{key}>{html.escape(value)}</{key}>" for key, value in others.items())
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{name}</Code><Message>{message}</Message>{more}</Error>'
    return Answer(code, text.encode(), {"content-type": "application/xml"})


class S3(StandIn):
    """Path-style S3; `keys` are secrets and session tokens by id, `part_bytes` of those that came in parts."""

    def __init__(self, region=REGION, tls=None):
        super().__init__(tls)
        self.region = region
        self.keys = {KEY_ID: (SECRET, None)}
        self.expired: set[str] = set()
        self.is_public = False
        self.part_bytes: dict[str, int] = {}
        self.encrypted: set[str] = set()

    def address(self, path=""):
        return f"s3://{self.host}/models/{path}"

    def etag(self, key):
        body = self.objects[key]
        size = self.part_bytes.get(key)
        if key in self.encrypted:
            return f'"{hashlib.md5(b"secret" + body).hexdigest()}"'
        if size is None:
            return f'"{hashlib.md5(body).hexdigest()}"'
        parts = [hashlib.md5(body[i : i + size]).digest() for i in range(0, len(body), size)]
        return f'"{hashlib.md5(b"".join(parts)).hexdigest()}-{len(parts)}"'

    def error(self, code, name, message, **others):
        return xml_error(code, name, message, **others)

    def refusal(self, request):
        """The answer to a request that is not signed as botocore signs it."""
        text = request.headers.get("authorization")
        if text is None:
            return None if self.is_public else self.error(403, "AccessDenied", "Access Denied")
        fields = dict(part.split("=", 1) for part in text.removeprefix("AWS4-HMAC-SHA256 ").split(","))
        key_id, _, region, service, _ = fields["Credential"].split("/")
        if key_id not in self.keys:
            return self.error(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
        if key_id in self.expired:
            return self.error(400, "ExpiredToken", "The provided token has expired.")
        if region != self.region:
            message = f"the region '{region}' is wrong; expecting '{self.region}'"
            return self.error(400, "AuthorizationHeaderMalformed", message, Region=self.region)
        secret, token = self.keys[key_id]
        if request.headers.get("x-amz-security-token") != token:
            return self.error(400, "InvalidToken", "The provided token is malformed or otherwise invalid.")
        signed = AWSRequest(request.method, f"http://{self.host}{request.target}", data=request.body)
        for name in fields["SignedHeaders"].split(";"):
            signed.headers[name] = request.headers[name]
        signed.context["timestamp"] = request.headers["x-amz-date"]
        auth = S3SigV4Auth(Credentials(key_id, secret, token), service, region)
        expected = auth.signature(auth.string_to_sign(signed, auth.canonical_request(signed)), signed)
        unsigned = {"host", "x-amz-date", "x-amz-content-sha256"} - set(fields["SignedHeaders"].split(";"))
        if expected != fields["Signature"] or unsigned:
            return self.error(403, "SignatureDoesNotMatch", "The request signature we calculated does not match.")
        return None

    def answer(self, request):
        if refusal := self.refusal(request):
            return refusal
        bucket, _, key = request.path.removeprefix("/").partition("/")
        if bucket != "models":
            return self.error(404, "NoSuchBucket", "The specified bucket does not exist")
        if not key:
            return self.list(request.query)
        if key not in self.objects:
            return self.error(404, "NoSuchKey", "The specified key does not exist.")
        headers = {"x-amz-server-side-encryption": "aws:kms"} if key in self.encrypted else {}
        if "partNumber" in request.query:
            return Answer(206, headers={"content-length": str(self.part_bytes[key]), "etag": self.etag(key)})
        return self.content(request, key, self.etag(key), headers)

    def list(self, query):
        keys, folders, after = self.listing(query["prefix"], query.get("delimiter"), query.get("continuation-token", ""))
        quote = urllib.parse.quote_plus if query.get("encoding-type") == "url" else html.escape
        rows = [
            f"<Contents><Key>{quote(key)}</Key><ETag>{html.escape(self.etag(key))}</ETag><Size>{len(self.objects[key])}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        ]
        rows += [f"<CommonPrefixes><Prefix>{quote(folder)}</Prefix></CommonPrefixes>" for folder in folders]
        page = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{html.escape(after)}</NextContinuationToken>"
        text = (
            '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<EncodingType>url</EncodingType>{page if after else '<IsTruncated>false</IsTruncated>'}{''.join(rows)}"
            "</ListBucketResult>"
        )
        return Answer(200, text.encode())


def crc32c(data):
    """Bit by bit, from the polynomial (RFC 3720, appendix B.4)."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


class Gs(StandIn):
    """Cloud Storage's JSON interface with the token endpoint of service accounts and the metadata service beside it."""

    def __init__(self):
        super().__init__()
        self.generations: dict[str, int] = {}
        self.tokens: set[str] = set()  # that are good
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.composite: set[str] = set()  # that have a CRC32C alone
        self.is_machine = False
        self.is_public = False

    def account_file(self, path):
        pem = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )  # fmt: skip
        path.write_text(json.dumps({
            "type": "service_account", "client_email": "loader@project.example", "private_key": pem.decode(),
            "private_key_id": "k1", "token_uri": f"http://{self.host}/token",
        }))  # fmt: skip
        return path

    def error(self, code, name, message):
        body = {"error": {"code": code, "message": message, "errors": [{"reason": name, "message": message}]}}
        return Answer(code, json.dumps(body).encode())

    def new_token(self):
        token = f"ya29.token-{len(self.requests)}"
        self.tokens.add(token)
        return Answer(200, json.dumps({"access_token": token, "expires_in": 3599, "token_type": "Bearer"}).encode())

    def grant(self, form):
        if form["grant_type"] == "refresh_token":
            good = (form["client_id"], form["client_secret"], form["refresh_token"]) == ("id", "hush", "again")
            return self.new_token() if good else Answer(400, b'{"error": "invalid_grant"}')
        statement, _, signature = form["assertion"].rpartition(".")
        decoded = [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in (*statement.split("."), signature)]
        self.key.public_key().verify(decoded[2], statement.encode(), padding.PKCS1v15(), hashes.SHA256())
        header, claims = json.loads(decoded[0]), json.loads(decoded[1])
        assert header == {"alg": "RS256", "typ": "JWT", "kid": "k1"}
        assert claims["iss"] == "loader@project.example" and claims["aud"] == f"http://{self.host}/token"
        assert claims["scope"].endswith("devstorage.read_only") and claims["exp"] - claims["iat"] == 3600
        return self.new_token()

    def answer(self, request):
        if request.method == "POST":
            return self.grant(dict(urllib.parse.parse_qsl(request.body.decode())))
        if request.path.startswith("/computeMetadata/"):
            assert request.headers["metadata-flavor"] == "Google"
            return self.new_token() if self.is_machine else Answer(404)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.tokens and not (self.is_public and not token):
            return self.error(401, "authError", "Invalid Credentials")
        _, _, rest = request.path.partition("/storage/v1/b/")
        bucket, _, key = rest.partition("/o")
        if bucket != "models":
            return self.error(404, "notFound", "The specified bucket does not exist.")
        if not key:
            return self.list(request.query)
        key = urllib.parse.unquote(request.target.split("?")[0].rpartition("/")[2])
        if key not in self.objects or request.query["generation"] != str(self.generation(key)):
            return self.error(404, "notFound", f"No such object: models/{key}")
        return self.content(request, key, "", {})

    def generation(self, key):
        return int.from_bytes(hashlib.md5(self.objects[key]).digest()[:6], "big")

    def list(self, query):
        keys, folders, after = self.listing(query["prefix"], query.get("delimiter"), query.get("pageToken", ""))
        items = []
        for key in keys:
            body = self.objects[key]
            item = {"name": key, "size": str(len(body)), "generation": str(self.generation(key))}
            if key in self.composite:
                item["crc32c"] = base64.b64encode(crc32c(body).to_bytes(4, "big")).decode()
            else:
                item["md5Hash"] = base64.b64encode(hashlib.md5(body).digest()).decode()
            items.append(item)
        page = {"items": items, "prefixes": folders, **({"nextPageToken": after} if after else {})}
        return Answer(200, json.dumps(page).encode())


class As(StandIn):
    """Blob storage with the account in the path, as Azurite has it."""

    ACCOUNT = "shelf"

    def __init__(self):
        super().__init__()
        self.key = base64.b64encode(b"a key of thirty-two bytes or so..").decode()
        self.signature = "sig=c2lnbmVk%2Bit&sv=2021-12-02&sp=rl"
        self.tokens = {"identity-token"}
        self.without_md5: set[str] = set()

    def connection(self, **others):
        fields = {"DefaultEndpointsProtocol": "http", "AccountName": self.ACCOUNT,
                  "BlobEndpoint": f"http://{self.host}/{self.ACCOUNT}", **others}  # fmt: skip
        return ";".join(f"{name}={value}" for name, value in fields.items())

    def error(self, code, name, message):
        return xml_error(code, name, f"{message}\nRequestId:1\nTime:2026")

    def is_authorised(self, request):
        sent = request.headers.get("authorization", "")
        if "sig" in request.query:
            return request.query["sig"] == "c2lnbmVk+it" and request.query["sp"] == "rl"
        if sent.startswith("Bearer "):
            return sent.removeprefix("Bearer ") in self.tokens
        signed = {name: value for name, value in request.headers.items() if name != "authorization"}
        copy = HttpRequest(request.method, f"http://{self.host}{request.target}", headers=signed)
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.target).query))
        http_request = types.SimpleNamespace(method=copy.method, url=copy.url, headers=copy.headers, query=query)
        context = types.SimpleNamespace(transport=None)
        SharedKeyCredentialPolicy(self.ACCOUNT, self.key).on_request(
            types.SimpleNamespace(http_request=http_request, context=context)
        )
        return sent == http_request.headers["Authorization"]

    def answer(self, request):
        if request.path == "/identity":
            assert request.headers["x-identity-header"] == "hush" and request.query["resource"].startswith("https://storage")
            token = f"token-{len(self.requests)}"
            self.tokens.add(token)
            return Answer(200, json.dumps({"access_token": token, "expires_in": "3599"}).encode())
        if not self.is_authorised(request):
            return self.error(403, "AuthenticationFailed", "Server failed to authenticate the request.")
        _, account, container, *rest = request.path.split("/", 3)
        assert account == self.ACCOUNT and request.headers["x-ms-version"]
        if container != "models":
            return self.error(404, "ContainerNotFound", "The specified container does not exist.")
        if not rest:
            return self.list(request.query)
        key = rest[0]
        if key not in self.objects:
            return self.error(404, "BlobNotFound", "The specified blob does not exist.")
        return self.content(request, key, f'"{self.tag(key)}"', {}, name="x-ms-range")

    def tag(self, key):
        return "0x8D" + hashlib.md5(self.objects[key]).hexdigest()[:12].upper()

    def list(self, query):
        keys, folders, after = self.listing(query["prefix"], query.get("delimiter"), query.get("marker", ""))
        rows = []
        for key in keys:
            body = self.objects[key]
            md5 = "" if key in self.without_md5 else base64.b64encode(hashlib.md5(body).digest()).decode()
            rows.append(
                f"<Blob><Name>{html.escape(key)}</Name><Properties><Etag>{self.tag(key)}</Etag><Content-Length>{len(body)}"
                f"</Content-Length><Content-MD5>{md5}</Content-MD5></Properties></Blob>"
            )
        rows += [f"<BlobPrefix><Name>{html.escape(folder)}</Name></BlobPrefix>" for folder in folders]
        marker = f"<NextMarker>{html.escape(after)}</NextMarker>"
        text = f"<EnumerationResults><Blobs>{''.join(rows)}</Blobs>{marker}</EnumerationResults>"
        return Answer(200, b"\xef\xbb\xbf" + b'<?xml version="1.0" encoding="utf-8"?>' + text.encode())
