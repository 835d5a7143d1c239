"""A service with OpenAI's interface on this machine, which fails as it is told."""

import json
import socket
import struct
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-test-4f7b2c9d1e8a"
RESET = "connection reset"
"""A response: none, and the connection is reset."""


def answer(text, finish="stop", usage=(40, 5)):
    """A chat completion that says ``text``."""
    counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)} if usage else None
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
    return 200, {}, {"id": "1", "object": "chat.completion", "created": 0, "choices": [choice], "usage": counts}


def failure(status, message="no", code=None, **headers):
    """An error of the service."""
    return status, headers, {"error": {"message": message, "code": code}}


def by_word(request):
    """The usual answer: `good` where the text holds that word, else `bad`."""
    text = request["messages"][-1]["content"]
    return answer(json.dumps({"label": "good" if "good" in text else "bad"}))


class ChatServer:
    """Counts and stores requests; ``reply`` makes the response to each, from its content."""

    def __init__(self):
        self.reply, self.requests, self.keys = by_word, [], []
        self.now = self.most = 0
        self.lock = threading.Lock()

    @property
    def texts(self):
        return [request["messages"][-1]["content"] for request in self.requests]

    def respond(self, request, key):
        with self.lock:
            self.requests.append(request)
            self.keys.append(key)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            return self.reply(request)
        finally:
            with self.lock:
                self.now -= 1


def in_turn(*replies):
    """Replies one after the other, then the usual ones; each a response, or a function of the request."""
    left, lock = list(replies), threading.Lock()

    def reply(request):
        with lock:
            response = left.pop(0) if left else by_word
        return response(request) if callable(response) else response

    return reply


def slow(seconds):
    """The usual answer after a while."""

    def reply(request):
        time.sleep(seconds)
        return by_word(request)

    return reply


@contextmanager
def serving():
    """Run a server; its `url` ends in /v1."""
    state = ChatServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            response = state.respond(request, self.headers.get("Authorization"))
            if response is RESET:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
                return
            status, headers, content = response
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Type", "application/json")
            if "Content_Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(OSError):  # the client has given up waiting
                self.wfile.write(body)
            if "Content_Length" in headers:
                self.close_connection = True

        def log_message(self, *parts):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
