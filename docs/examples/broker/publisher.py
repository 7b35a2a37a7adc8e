"""Publishes what a subscription receives to RabbitMQ: publisher.py SUBSCRIPTION EXCHANGE. Wants libpq's variables and AMQP_URL."""
import json, os, pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'clients'))
import pika
from stacksaga import Client

class Rabbit:
    def __init__(self, exchange):
        self.exchange, self.channel = exchange, None

    def send(self, db, message):
        """Returns when the broker has confirmed the message, or raises."""
        fresh = self.channel is None
        try:
            self.channel = self.channel or self.connect()
            properties = pika.BasicProperties(message_id=str(message['message_id']), type=message['type'] or message['topic'],
                delivery_mode=2, content_type='application/json', headers={**message['headers'], 'stacksaga-key': message['key']})
            self.channel.basic_publish(self.exchange, message['topic'], json.dumps(message['payload']), properties, mandatory=True)
        except pika.exceptions.AMQPError as error:
            self.channel = None
            if fresh or isinstance(error, pika.exceptions.UnroutableError):
                raise
            self.send(db, message)  # a connection that was idle for a minute is closed: once more, on a new one

    def connect(self):
        channel = pika.BlockingConnection(pika.URLParameters(os.environ['AMQP_URL'])).channel()
        channel.exchange_declare(self.exchange, 'topic', durable=True)
        channel.confirm_delivery()  # from now on basic_publish waits for the broker, and raises where no queue takes the message
        return channel

if __name__ == '__main__':
    Client().consume(sys.argv[1], Rabbit(sys.argv[2]).send)
