"""What a trained encoder is worth: retrieval metrics, histograms, and the published figures beside ours."""
