"""The engine: cases are drawn, observed on a backend, judged, shrunk and explained."""
