"""What `finetune` and `pretrain` share: the options, the choices, the training, how it goes on."""
