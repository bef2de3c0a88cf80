"""Tests of what encoders take."""
