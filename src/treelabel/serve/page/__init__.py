"""The web page: server-rendered, with a little script."""
