"""Image towers: backbones of transformers, CLIP's ResNet, torchvision's weights."""
