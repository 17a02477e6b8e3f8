"""Tests of clients of Kafka and of their settings."""
