# SPDX-License-Identifier: Apache-2.0
"""The page for browsers: its files over HTTP, and what it does in a headless Chromium with the demo model."""

import gzip
import hashlib
import json
import pathlib
import re
import subprocess
import sys

import pytest
import requests
from browser import Browser, needs_chromium
from live_server import ROOT, start_server
from scripted_model import write_scripted_model

FILES = ROOT / "src" / "protocol" / "page" / "files"
HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
QUESTION = "What is the capital of France?"
VIEWS = ["tab-chat", "tab-models", "tab-metrics"]
ANSWERED = "document.querySelector('.turn.assistant') && !document.querySelector('.coming')"


@pytest.fixture(scope="module")
def url(server):
    return f"http://{server.http}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


def plain(url, path, **headers):
    return requests.get(f"{url}{path}", headers={"Accept-Encoding": "identity", **headers}, timeout=30)


def test_each_file_is_served_as_it_is_in_the_tree(url):
    types = {
        ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml"
    }  # fmt: skip
    names = sorted(path.name for path in FILES.iterdir())
    assert "page.html" in names and "page.js" in names
    for name in names:
        answer = plain(url, f"/page/{name}")
        assert answer.content == (FILES / name).read_bytes(), name
        assert answer.headers["Content-Type"].split(";")[0] == types[pathlib.Path(name).suffix]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for path, name in (("/", "page.html"), ("/docs", "docs.html"), ("/openapi.json", "openapi.json")):
        assert plain(url, path, **HTML).content == (FILES / name).read_bytes(), path


def test_a_file_is_known_by_its_tag_and_packed_for_who_takes_that(url):
    tags = {}
    for coding in ("identity", "gzip"):
        with requests.get(f"{url}/page/page.css", headers={"Accept-Encoding": coding}, stream=True, timeout=30) as answer:
            tags[coding] = answer.headers["ETag"]
            raw = answer.raw.read(decode_content=False)
        body = gzip.decompress(raw) if coding == "gzip" else raw
        assert body == (FILES / "page.css").read_bytes()
        again = requests.get(
            f"{url}/page/page.css", headers={"Accept-Encoding": coding, "If-None-Match": tags[coding]}, timeout=30
        )
        assert (again.status_code, again.content) == (304, b"")
    assert tags["identity"] != tags["gzip"]


def test_the_policy_lets_nothing_in_from_elsewhere(url):
    policy = dict(rule.strip().split(" ", 1) for rule in plain(url, "/", **HTML).headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in str(policy) and policy["require-trusted-types-for"] == "'script'"


def test_the_root_is_tritons_for_who_does_not_ask_for_html(url):
    for headers in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        answer = requests.get(url, headers=headers, timeout=30)
        assert (answer.status_code, answer.text) == (404, '{"error":"Not Found"}')
    assert requests.post(url, headers=HTML, timeout=30).status_code == 405


def test_the_page_can_be_turned_off(tmp_path, repository):
    server = start_server(
        tmp_path, None, "--model-repository", repository, "--allow-grpc=false", "--allow-page=false", max_kv_tokens=None
    )
    for path in ("/", "/docs", "/openapi.json", "/page/page.js", "/page/metrics"):
        assert requests.get(f"http://{server.http}{path}", headers=HTML, timeout=30).status_code == 404
    assert server.stop() == 0


def test_metrics_are_shown_where_their_page_may_be_read(tmp_path, repository):
    """A server for other machines shows them at its HTTP port only when it is told to."""
    for name, options, status in (("closed", [], 404), ("open", ["--http-metrics=true"], 200)):
        (tmp_path / name).mkdir()
        server = start_server(
            tmp_path / name, None, "--model-repository", repository, "--allow-grpc=false", "--http-address=0.0.0.0", *options,
            max_kv_tokens=None,
        )  # fmt: skip
        assert requests.get(f"http://{server.http}/page/metrics", timeout=30).status_code == status
        assert server.stop() == 0


def ask(tab, text, count=1):
    """Types a question, sends it by the keyboard and waits for the answer."""
    tab.focus("#composer-text")
    tab.type(text)
    tab.press("Enter")
    tab.wait(f"document.querySelectorAll('.turn').length === {2 * count} && {ANSWERED}")
    return tab.value("[...document.querySelectorAll('.turn.assistant .markdown')].at(-1).textContent")


def greedy(tab, max_tokens=12):
    tab.fill("[name=temperature]", "0")
    tab.fill("[name=max_tokens]", str(max_tokens))


def chat_bodies(tab):
    return [json.loads(body) for method, url, body in tab.requests if method == "POST" and url.endswith("/v1/chat/completions")]


def answer_of(url, body):
    """What the API answers without a stream."""
    body = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
    answer = requests.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def words(text):
    return re.sub(r"\s+", " ", text).strip()


def opened(tab, url):
    tab.open(f"{url}/")
    tab.wait("document.querySelector('#model').options.length > 0")


@needs_chromium
def test_a_question_is_answered_as_it_streams(browser, url):
    with browser.tab() as tab:
        opened(tab, url)
        greedy(tab)
        text = ask(tab, QUESTION)
        body = chat_bodies(tab)[-1]
        expected = answer_of(url, body)
        assert words(text) == words(expected["choices"][0]["message"]["content"])
        note = tab.text(".turn.assistant .note")
        assert note.startswith(f"{expected['usage']['completion_tokens']} tokens · ") and "tokens/s" in note
        assert note.endswith(f"prompt {expected['usage']['prompt_tokens']}")
        assert tab.text("#status").startswith("Answer: ")
        # The second question goes with the conversation before it.
        ask(tab, "And of Spain?", 2)
        assert [message["role"] for message in chat_bodies(tab)[-1]["messages"]] == ["user", "assistant", "user"]
        assert tab.errors == []


@needs_chromium
def test_settings_go_into_the_body_and_stay(browser, url):
    seed = "18446744073709551615"  # more than a number of JavaScript holds
    settings = {"system": "Be brief.", "temperature": "0.5", "top_p": "0.9", "top_k": "5", "max_tokens": "3", "seed": seed}
    with browser.tab() as tab:
        opened(tab, url)
        for name, value in settings.items():
            tab.fill(f"[name={name}]", value)
        ask(tab, QUESTION)
        body = chat_bodies(tab)[-1]
        assert body == {
            "model": "demo", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}],
            "temperature": 0.5, "top_p": 0.9, "top_k": 5, "max_tokens": 3, "seed": int(seed), "stream": True,
            "stream_options": {"include_usage": True},
        }  # fmt: skip
        opened(tab, url)
        assert tab.value("document.querySelector('[name=seed]').value") == seed
        tab.click("#reset-settings")
        ask(tab, QUESTION)
        assert set(chat_bodies(tab)[-1]) == {"model", "messages", "stream", "stream_options"}
        # A value out of its bounds is not sent.
        tab.fill("[name=top_p]", "7")
        tab.fill("#composer-text", "again")
        tab.click("#send")
        assert tab.value("document.activeElement.name") == "top_p" and len(chat_bodies(tab)) == 2


@needs_chromium
def test_an_answer_is_stopped_made_again_and_edited(browser, url):
    with browser.tab() as tab:
        opened(tab, url)
        greedy(tab, 2000)
        tab.fill("[name=seed]", "1")
        tab.focus("#composer-text")
        tab.type(QUESTION)
        tab.press("Enter")
        tab.wait("document.querySelector('.turn.assistant .markdown')?.textContent.length > 0")
        tab.press("Escape")
        tab.wait(ANSWERED)
        assert not tab.value("document.querySelector('#send').hidden")
        tab.fill("[name=max_tokens]", "8")
        button = """[...[...document.querySelectorAll('.turn')].at({0}).querySelectorAll('.turn-foot button')]
            .find((b) => b.textContent === '{1}').click()"""
        tab.value(button.format(-1, "Regenerate"))
        tab.wait(f"document.querySelector('.turn.assistant .note')?.textContent.startsWith('8 tokens') && {ANSWERED}")
        assert tab.value("document.querySelectorAll('.turn').length") == 2
        # An edited question is asked again, and nothing of the first answer goes with it.
        tab.value(button.format(0, "Edit"))
        tab.fill(".turn.user textarea", "Name a colour.")
        tab.click(".turn.user .turn-foot .primary")
        tab.wait(f"document.querySelectorAll('.turn').length === 2 && {ANSWERED}")
        assert chat_bodies(tab)[-1]["messages"] == [{"role": "user", "content": "Name a colour."}]
        # An edited answer is what the conversation goes on from.
        tab.value(button.format(-1, "Edit"))
        tab.fill(".turn.assistant textarea", "Blue.")
        tab.click(".turn.assistant .turn-foot .primary")
        ask(tab, "Another one?", 2)
        assert [m["content"] for m in chat_bodies(tab)[-1]["messages"]] == ["Name a colour.", "Blue.", "Another one?"]
        tab.click("#new-chat")
        assert tab.value("document.querySelectorAll('.turn').length") == 0
        assert tab.errors == []


@needs_chromium
def test_the_request_runs_elsewhere(browser, url, tmp_path):
    """What the page shows as curl and as Python answers what the page answered."""
    question = "What's \"in\" a $HOME\\name?\nA line."
    with browser.tab() as tab:
        opened(tab, url)
        greedy(tab)
        tab.fill("[name=top_k]", "4")
        tab.fill("[name=seed]", "7")
        tab.fill("#composer-text", question)
        tab.click("#show-request")
        curl = tab.text("#request-code")
        tab.focus("#tab-curl")
        tab.press("ArrowRight")
        python = tab.text("#request-code")
        tab.click("#tab-json")
        body = json.loads(tab.text("#request-code"))
        assert body["messages"][-1]["content"] == question and body["top_k"] == 4
    expected = answer_of(url, body)["choices"][0]["message"]["content"]
    done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=60, check=True)
    events = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("data: {")]
    assert "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]) == expected
    (tmp_path / "ask.py").write_text(python)
    done = subprocess.run([sys.executable, tmp_path / "ask.py"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == expected + "\n"


HOSTILE = """<script>alert(1)</script> <img src=x onerror=alert(1)>
[click](javascript:alert(1)) [data](data:text/html,x) ![picture](https://example.org/a.png) [a](https://example.org/)

```html
<b onclick="x()">code</b>
```

<iframe src="https://example.org"></iframe>"""
MARKDOWN = """
# A

**b** *c* `d` a_b_c 2*3*4

- one
  - two

1. x
2. y

> q

|a|b|
|-|-|
|1|2|

---

```py
x = 1
"""
LINKS = ["https://example.org/a.png", "https://example.org/", "https://example.org/"]  # of HOSTILE, one for an address in text
# Of text that nobody can foresee, what readers of Markdown are known to be slow at.
UNITS = ["*a ", "**", "[", "[a](", "`", "> ", "- ", "  - a\n", "|", "_a_", "\\", "1. ", "http://", "~~~", "#", "a|b\n-|-\n", "* "]


@needs_chromium
def test_text_of_a_model_stays_text(browser, url):
    render = """(async () => {{
        const {{ MarkdownView }} = await import('/page/markdown.js');
        const root = document.createElement('div');
        const view = new MarkdownView(root);
        {0}
        return {1};
    }})()"""
    with browser.tab() as tab:
        opened(tab, url)

        def rendered(text, value):
            return tab.value(render.format(f"view.set({json.dumps(text)});", value))

        every = "[...root.querySelectorAll('*')].map((e) => e.tagName)"

        tags = rendered(HOSTILE, every)
        assert set(tags) == {"A", "BR", "BUTTON", "CODE", "FIGCAPTION", "FIGURE", "P", "PRE", "SPAN"}
        assert rendered(HOSTILE, "[...root.querySelectorAll('a')].map((a) => [a.href, a.rel])") == [
            [address, "noopener noreferrer nofollow"] for address in LINKS
        ]
        assert "<script>alert(1)</script>" in rendered(HOSTILE, "root.textContent")
        assert rendered(MARKDOWN, "[...root.children].map((e) => e.tagName)") == [
            "H3", "P", "UL", "OL", "BLOCKQUOTE", "DIV", "HR", "FIGURE",
        ]  # fmt: skip
        assert rendered(MARKDOWN, "root.querySelector('li li').textContent.trim()") == "two"
        assert rendered(MARKDOWN, "[...root.querySelectorAll('td')].map((e) => e.textContent)") == ["1", "2"]
        assert rendered(MARKDOWN, "root.querySelector('pre code').textContent") == "x = 1\n"
        assert rendered("a_b_c and __d__", "root.firstChild.textContent") == "a_b_c and d"
        # A text that grows by pieces ends as the whole one does.
        text = json.dumps(HOSTILE + MARKDOWN)
        grow = f"const text = {text}; for (let i = 0; i <= text.length; ++i) view.set(text.slice(0, i));"
        assert tab.value(render.format(grow, every)) == rendered(HOSTILE + MARKDOWN, every)
        # Time is in proportion to the length, whatever stands there: each of these ends within the test's patience.
        for unit in UNITS:
            tab.value(render.format(f"view.set({json.dumps(unit)}.repeat(10000));", "root.textContent.length"))
        assert tab.errors == []


CODE = """def f(x):
    return '<b>' if x < 1 else "é"  # `$HOME` \\ &amp;
"""  # and an empty line behind it
SAYS = f"So, in **Python**:\n\n```py\n{CODE}\n```\n\nThat is all."


@pytest.fixture(scope="module")
def coder(tmp_path_factory):
    """A model that answers with code, whatever it is asked."""
    folder = tmp_path_factory.mktemp("coder")
    template = "{% for m in messages %}{{ m.content }}{% endfor %}<|code|>"
    running = start_server(folder, write_scripted_model(folder / "coder", template, {"code": SAYS}), "--allow-grpc=false")
    yield f"http://{running.http}"
    assert running.stop() == 0, running.log.read_text()[-4000:]


@needs_chromium
def test_code_and_answers_are_copied(browser, coder):
    code_button, answer_button = "figure button", ".turn.assistant .turn-foot button"
    with browser.tab() as tab:
        opened(tab, coder)
        ask(tab, QUESTION)

        def copied(selector, says="Copied"):
            """What lies in the clipboard behind a press of the button."""
            tab.clipboard("clipboard.writeText('of before')")
            tab.wait(f"document.querySelector('{selector}').textContent === 'Copy'")
            tab.focus(selector)
            tab.press("Enter")
            tab.wait(f"document.querySelector('{selector}').textContent === '{says}'")
            assert tab.text("#status") == says
            assert tab.value(f"document.activeElement === document.querySelector('{selector}')")
            return tab.clipboard()

        assert tab.text("figure pre code") == CODE
        assert copied(code_button) == CODE
        assert copied(answer_button) == SAYS
        # A page that came by http from another machine has no clipboard of this kind.
        tab.value("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
        assert copied(code_button) == CODE
        assert copied(answer_button) == SAYS
        assert tab.value("document.querySelectorAll('body > textarea').length") == 0
        refused = "{ writeText: () => Promise.reject(new Error('no')) }"
        tab.value(f"Object.defineProperty(navigator, 'clipboard', {{ value: {refused} }})")
        assert copied(code_button, "Not allowed") == "of before"
        assert tab.errors == []


@needs_chromium
def test_a_key_is_asked_for_and_kept_in_the_tab(browser, tmp_path):
    key = "key-of-the-page-0123456789"
    (tmp_path / "keys").write_text(f"sha256:{hashlib.sha256(key.encode()).hexdigest()}\n")
    server = start_server(tmp_path, ROOT / "models" / "demo", "--allow-grpc=false", "--api-key-file", tmp_path / "keys")
    try:
        with browser.tab() as tab:
            tab.open(f"http://{server.http}/")
            tab.wait("document.querySelector('#key-dialog').open")
            tab.type("wrong")
            tab.press("Enter")
            tab.wait("document.querySelector('#model-list').textContent.length > 0")
            assert tab.value("document.querySelector('#model').options.length") == 0
            tab.click("#key-button")
            tab.wait("document.activeElement.id === 'key-value'")
            tab.type(key)
            tab.press("Enter")
            tab.wait("document.querySelector('#model').options.length === 1")
            greedy(tab)
            assert ask(tab, QUESTION)
            for place in ("JSON.stringify(localStorage)", "document.documentElement.outerHTML", "location.href"):
                assert key not in tab.value(place)
            tab.click("#show-request")
            assert "$INFLIGHT_API_KEY" in tab.text("#request-code")
    finally:
        assert server.stop() == 0


@needs_chromium
def test_models_memory_and_metrics_are_shown(browser, url):
    with browser.tab() as tab:
        opened(tab, url)
        tab.click("#tab-models")
        tab.wait("document.querySelector('#memory td')")
        assert "demo" in tab.text("#model-list")
        assert "weights, KV cache and workspace, host" in tab.text("#memory")
        tab.click("#tab-metrics")
        tab.wait("document.querySelector('.chart').textContent.match(/^Tokens generated.*[0-9]\\/s/)")
        tab.wait("document.querySelector('.chart-line').getAttribute('d')?.includes('L')")
        assert tab.value("document.querySelector('#metrics-notice').hidden")
        assert tab.errors == []


@needs_chromium
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("is_dark", [False, True])
def test_it_fits_the_window_and_can_be_read(browser, url, width, is_dark):
    contrast = """(() => {
        const parts = [0.2126, 0.7152, 0.0722];
        const light = (text) => text.match(/[0-9.]+/g).slice(0, 3).map(Number).map((v) => v / 255)
            .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
            .reduce((sum, v, i) => sum + v * parts[i], 0);
        const behind = (node) => { for (; node; node = node.parentElement) {
            const colour = getComputedStyle(node).backgroundColor; 
            if (!/, 0\\)$/.test(colour)) return light(colour); } return 1; };
        return [...document.querySelectorAll('button, label, p, a, span, small, h1, h2, td, th, summary')]
            .filter((node) => node.offsetParent && node.textContent.trim())
            .map((node) => { const pair = [light(getComputedStyle(node).color), behind(node)].sort((a, b) => b - a);
                return [(pair[0] + 0.05) / (pair[1] + 0.05), node.textContent.slice(0, 30)]; })
            .filter(([ratio]) => ratio < 4.5); })()"""
    with browser.tab(width, 740, is_dark) as tab:
        opened(tab, url)
        greedy(tab)
        ask(tab, "x" * 200)
        pages = [(view, "/") for view in VIEWS] + [("", "/docs")]
        for view, path in pages:
            if view:
                tab.click(f"#{view}")
            else:
                tab.open(url + path)
                tab.wait("document.querySelector('.operation')")
                tab.value("document.querySelector('.operation').open = true")
                tab.wait("document.querySelector('.operation table')")
            assert tab.value("document.documentElement.scrollWidth") <= width, (view, path)
            assert tab.value(contrast) == [], (view, path)
        assert tab.errors == []


@needs_chromium
def test_the_keyboard_reaches_all_and_all_has_a_name(browser, url):
    with browser.tab(360, 740) as tab:
        opened(tab, url)
        greedy(tab)
        ask(tab, QUESTION)
        for role, name in tab.accessible():
            if role in ("button", "textbox", "spinbutton", "combobox", "link", "tab", "tabpanel", "article", "searchbox"):
                assert name.strip(), role
        roles = {role for role, _ in tab.accessible()}
        assert {"tablist", "tab", "tabpanel", "article", "status", "navigation", "main"} <= roles
        # Tab goes once round everything that can be used, and comes to each of it.
        tab.value("document.activeElement.blur()")
        seen = []
        for _ in range(60):
            tab.press("Tab")
            seen.append(tab.value("document.activeElement.id || document.activeElement.textContent"))
        assert {"tab-chat", "key-button", "theme-button", "messages", "composer-text", "send", "new-chat", "Copy", "Edit",
                "Regenerate", "show-request"} <= set(seen)  # fmt: skip
        tab.focus("#tab-chat")
        tab.press("ArrowRight")
        assert tab.value("document.activeElement.id") == "tab-models"
        assert not tab.value("document.querySelector('#models').hidden")
        tab.press("ArrowLeft")
        tab.press("ArrowLeft")
        assert tab.value("document.activeElement.id") == "tab-metrics"


@needs_chromium
def test_dark_and_light_are_chosen_and_kept(browser, url):
    with browser.tab(is_dark=True) as tab:
        opened(tab, url)
        shades = {}
        for _ in range(3):
            shades[tab.text("#theme-button")] = tab.value(
                "getComputedStyle(document.body).backgroundColor"
            )
            tab.click("#theme-button")
        assert set(shades) == {"Auto", "Dark", "Light"} and shades["Auto"] == shades["Dark"] != shades["Light"]
        tab.click("#theme-button")
        tab.click("#theme-button")
        opened(tab, url)
        assert tab.text("#theme-button") == "Light"


@needs_chromium
def test_the_description_lists_the_routes_and_calls_them(browser, url):
    description = requests.get(f"{url}/openapi.json", timeout=30).json()
    operations = [f"{method.upper()}{path}" for path, methods in description["paths"].items() for method in methods]
    with browser.tab() as tab:
        tab.open(f"{url}/docs")
        tab.wait("document.querySelector('.operation')")
        shown = tab.value(
            "[...document.querySelectorAll('.operation summary')].map((s) => s.children[0].innerText + s.children[1].innerText)"
        )
        assert sorted(shown) == sorted(operations)
        tab.fill("#filter", "/tokenize")
        assert tab.value("document.querySelectorAll('.operation:not([hidden])').length") == 1
        tab.click(".operation:not([hidden]) summary")
        tab.wait("document.querySelector('.operation:not([hidden]) form')")
        tab.fill(".operation:not([hidden]) textarea", json.dumps({"prompt": "Once upon a time"}))
        tab.click(".operation:not([hidden]) .primary")
        tab.wait("document.querySelector('.operation:not([hidden]) .answer').textContent.startsWith('200')")
        answer = tab.text(".operation:not([hidden]) .answer")
        expected = requests.post(f"{url}/tokenize", json={"prompt": "Once upon a time"}, timeout=30).json()
        assert json.loads(answer.split("\n", 1)[1]) == expected
        forget = """import("/page/api.js").then(({ curlOf }) => curlOf("v1/responses/it's", { method: "DELETE" }))"""
        assert tab.value(forget) == f"curl -N '{url}/v1/responses/it'\\''s' \\\n  -X DELETE"
        assert tab.errors == []
