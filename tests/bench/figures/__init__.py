"""Tests of the papers' figures."""
