"""What runs in the peers' environment: `serve`, started with the path of another of these; none imports ours."""
