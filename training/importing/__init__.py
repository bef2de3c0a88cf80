"""Readers that turn folders of images and the published layouts of data sets into manifests."""
