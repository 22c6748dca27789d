"""The manifest store in a DynamoDB table: its client, the store itself, and the creation and check of the table."""
