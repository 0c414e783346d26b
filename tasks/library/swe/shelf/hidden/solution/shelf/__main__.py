import sys
from wsgiref.simple_server import make_server

from shelf.app import App
from shelf.store import Store

if __name__ == "__main__":
    with Store(sys.argv[1]) as store, make_server("127.0.0.1", 8000, App(store)) as server:
        server.serve_forever()
